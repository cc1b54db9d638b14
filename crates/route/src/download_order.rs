//! Parses the request to download a model: `{"model": "USER/REPO:QUANT"}`, or the URL of its file.

use http::StatusCode;
use plimsoll_hub::download_name;
use serde_json::Value;

use super::problem::HttpProblem;

/// A model that is to be downloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadOrder {
    /// Its name on the hub, or its address.
    pub requested: String,
    /// The name under which it will be served.
    pub name: String,
    /// It is wanted although it fits on no card.
    pub force: bool,
    /// Only servers of the public network are asked: the client is not this machine's operator.
    pub public_only: bool,
}

impl DownloadOrder {
    pub(super) fn read(order: &Value, public_only: bool) -> Result<Self, HttpProblem> {
        let bad = |code, text: &str| HttpProblem::new(StatusCode::BAD_REQUEST, code, text);
        let requested = order["model"].as_str().filter(|name| !name.is_empty());
        let requested = requested.ok_or_else(|| bad("model_missing", "model must be a non-empty string"))?;
        let force = match &order["force"] {
            Value::Null => false,
            Value::Bool(force) => *force,
            _ => return Err(bad("bad_force", "force must be true or false")),
        };
        let name = download_name(requested).map_err(|error| bad("download_refused", &error.to_string()))?;
        Ok(Self { requested: requested.to_owned(), name, force, public_only })
    }

    /// True for a model that is named by its address.
    pub fn is_address(&self) -> bool {
        self.name != self.requested
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::DownloadOrder;

    #[test]
    fn an_order_names_a_model_or_an_address_and_nothing_else() {
        let read = |order| DownloadOrder::read(&order, true);
        let hub = read(json!({ "model": "u/r:Q4" })).unwrap();
        assert_eq!((hub.name.as_str(), hub.force, hub.is_address()), ("u/r:Q4", false, false));
        let plain = read(json!({ "model": "https://h/a/m-Q4.gguf?x=1", "force": true })).unwrap();
        assert_eq!((plain.name.as_str(), plain.force, plain.is_address()), ("m-Q4", true, true));
        for (order, code) in [
            (json!({}), "model_missing"),
            (json!([]), "model_missing"),
            (json!({ "model": "" }), "model_missing"),
            (json!({ "model": 5 }), "model_missing"),
            (json!({ "model": "u/r", "force": "yes" }), "bad_force"),
            (json!({ "model": "https://h/../x" }), "download_refused"),
            (json!({ "model": "http://u:p@h/m.gguf" }), "download_refused"),
        ] {
            assert_eq!(read(order.clone()).unwrap_err().code, code, "{order}");
        }
    }
}
