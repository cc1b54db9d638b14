//! Serves an engine's own pages under an origin of their own, `http://NAME.engine.localhost:PORT/`.
//!
//! DECISION: a name below `localhost`, which browsers resolve to this machine themselves (RFC 6761). A page
//! at `/upstream/` has an opaque origin, because it would otherwise have that of `/ui` and of the API. A page
//! that stores something or asks its engine needs an origin of its own. No path of such an origin is this
//! server's: a page that outlives its engine must not find the API there.

use http::StatusCode;
use http::request::Parts;
use http::uri::PathAndQuery;
use plimsoll_scheduler::ModelId;

use super::body::ClientBody;
use super::model_service::{ModelService, RequestRouter};
use super::problem::HttpProblem;
use super::reply::Reply;
use super::server::HttpServer;

/// A model's name in the host of its origin: letters, digits and hyphens, as hosts allow.
fn label_of(name: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    name.chars().map(plain).collect()
}

impl<H: RequestRouter> HttpServer<H> {
    /// Passes a request on to the engine whose origin it is for.
    pub(super) async fn to_origin(
        self: &std::rc::Rc<Self>,
        label: &str,
        head: Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let model = self.permitted(&head, self.model_of_origin(label)?)?;
        let target = head.uri.path_and_query().cloned();
        let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
        self.pass_unchanged(model, target, (head, body), true).await
    }

    fn model_of_origin(&self, label: &str) -> Result<ModelId, HttpProblem> {
        let label = label.to_ascii_lowercase();
        let models = self.service.local().models().into_iter();
        let mut fitting =
            models.filter(|model| self.service.local().is_named(*model, |name| label_of(name) == label));
        // Two engines in one origin would have each other's pages.
        match (fitting.next(), fitting.next()) {
            (Some(model), None) => Ok(model),
            (Some(_), Some(_)) => {
                Err(no_origin(&format!("several models have the address '{label}.engine.localhost'")))
            }
            (None, _) => Err(no_origin(&format!("no model has the address '{label}.engine.localhost'"))),
        }
    }
}

fn no_origin(text: &str) -> HttpProblem {
    HttpProblem::new(StatusCode::NOT_FOUND, "model_not_found", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_model_is_one_of_a_host() {
        assert_eq!(label_of("user/Real:Q4_K"), "user-real-q4-k");
    }
}
