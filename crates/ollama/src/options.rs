//! Translates Ollama's `options` into parameters of llama-server.

use serde_json::{Map, Value};

use super::{InvalidRequest, refused};

/// Kind of value that an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionKind {
    Whole,
    /// The same; a negative number means no limit, which is llama-server's default.
    Limit,
    Number,
    Texts,
}

/// Options with a parameter for each request, and its name in llama-server's schema.
const TABLE: [(&str, OptionKind, &str); 16] = [
    ("num_predict", OptionKind::Limit, "max_tokens"),
    ("num_keep", OptionKind::Whole, "n_keep"),
    ("seed", OptionKind::Whole, "seed"),
    ("stop", OptionKind::Texts, "stop"),
    ("temperature", OptionKind::Number, "temperature"),
    ("top_k", OptionKind::Whole, "top_k"),
    ("top_p", OptionKind::Number, "top_p"),
    ("min_p", OptionKind::Number, "min_p"),
    ("typical_p", OptionKind::Number, "typical_p"),
    ("repeat_last_n", OptionKind::Whole, "repeat_last_n"),
    ("repeat_penalty", OptionKind::Number, "repeat_penalty"),
    ("presence_penalty", OptionKind::Number, "presence_penalty"),
    ("frequency_penalty", OptionKind::Number, "frequency_penalty"),
    ("mirostat", OptionKind::Whole, "mirostat"),
    ("mirostat_tau", OptionKind::Number, "mirostat_tau"),
    ("mirostat_eta", OptionKind::Number, "mirostat_eta"),
];

/// Parameters for the engine. Options of a load (`num_gpu`, `use_mmap`, …) are the configuration's, and are
/// left out like unknown ones.
pub fn parameters(options: &Map<String, Value>) -> Result<Map<String, Value>, InvalidRequest> {
    let mut parameters = Map::new();
    for (name, kind, parameter) in TABLE {
        let Some(value) = options.get(name).filter(|value| !value.is_null()) else { continue };
        let value = kind.read(value).ok_or_else(|| wrong(name, kind))?;
        if kind != OptionKind::Limit || value.as_i64().is_none_or(|limit| limit >= 0) {
            parameters.insert(parameter.to_owned(), value);
        }
    }
    Ok(parameters)
}

/// True for an option that a request can set.
pub fn is_of_requests(name: &str) -> bool {
    TABLE.iter().any(|(known, ..)| *known == name)
}

/// `num_ctx`: the context that the client expects.
pub fn context(options: &Map<String, Value>) -> Option<u64> {
    OptionKind::Whole.read(options.get("num_ctx")?)?.as_u64()
}

impl OptionKind {
    fn read(self, value: &Value) -> Option<Value> {
        match (self, value) {
            (Self::Whole | Self::Limit, Value::Number(number)) => {
                // Clients written in JavaScript and Lua send whole numbers as 40.0.
                let whole = number.as_i64().map(Value::from);
                whole.or_else(|| format!("{:.0}", number.as_f64()?).parse::<i64>().ok().map(Value::from))
            }
            (Self::Number, Value::Number(_)) => Some(value.clone()),
            (Self::Texts, Value::String(_)) => Some(Value::Array(vec![value.clone()])),
            (Self::Texts, Value::Array(texts)) => texts.iter().all(Value::is_string).then(|| value.clone()),
            _ => None,
        }
    }
}

fn wrong(name: &str, kind: OptionKind) -> InvalidRequest {
    let wanted = match kind {
        OptionKind::Whole | OptionKind::Limit => "integer",
        OptionKind::Number => "float32",
        OptionKind::Texts => "array of strings",
    };
    // The words of Ollama's server.
    refused(format!("option \"{name}\" must be of type {wanted}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(options: Value) -> Result<Value, String> {
        let Value::Object(options) = options else { unreachable!() };
        parameters(&options).map(Value::Object).map_err(|problem| problem.0)
    }

    #[test]
    fn options_become_parameters_and_those_of_a_load_are_left_out() {
        let given = json!({
            "num_predict": 12, "temperature": 0, "top_k": 40.0, "seed": 7, "stop": "END", "num_ctx": 8192,
            "num_gpu": 99, "use_mmap": true, "min_p": null, "made_up": {"x": 1},
        });
        let expected = json!({"max_tokens": 12, "temperature": 0, "top_k": 40, "seed": 7, "stop": ["END"]});
        assert_eq!(read(given), Ok(expected));
        assert_eq!(read(json!({"num_predict": -1})), Ok(json!({})));
        assert_eq!(read(json!({"num_predict": 0})), Ok(json!({"max_tokens": 0})));
    }

    #[test]
    fn a_value_of_another_type_is_refused_by_name() {
        for (name, value) in
            [("top_k", json!("40")), ("temperature", json!([])), ("stop", json!([1])), ("seed", json!(1e300))]
        {
            let refusal = read(json!({ name: value })).unwrap_err();
            assert!(refusal.starts_with(&format!("option \"{name}\" must be of type")), "{refusal}");
        }
    }
}
