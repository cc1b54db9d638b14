//! Answers `/api/flags`, by which an operator plans and saves other flags of a model.

use http::request::Parts;
use http::{Method, StatusCode};
use plimsoll_scheduler::ModelId;
use serde::Deserialize;

use super::api::Own;
use super::body::{ClientBody, receive_order};
use super::model_service::{ModelService, RequestRouter};
use super::problem::{HttpProblem, without_engine_words};
use super::query;
use super::reply::{self, Reply};
use super::server::HttpServer;

/// An order about the flags of a model in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlagsOrder {
    /// The flags as the file has them.
    Show { model: ModelId },
    /// What a load with these flags would take and stop; nothing is written.
    Plan { model: ModelId, flags: String },
    /// Writes the flags into the file whose text has this digest.
    Save { model: ModelId, flags: String, digest: String },
    /// Writes the text before the last change of flags again.
    Undo { digest: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlagsBody {
    model: Option<String>,
    flags: Option<String>,
    digest: Option<String>,
}

impl<H: RequestRouter> HttpServer<H> {
    pub(crate) async fn flags(
        &self,
        own: Own,
        head: &Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let order = if head.method == Method::POST {
            let text = receive_order(body, &self.bodies, &self.settings.limits).await?;
            let read: Result<FlagsBody, _> = serde_json::from_slice(&text);
            let body = read.map_err(|error| bad(format!("the body is not valid: {error}")))?;
            self.flags_order(own, head, body)?
        } else {
            let name = query::parameter(head.uri.query(), "model").ok_or_else(|| missing("model"))?;
            FlagsOrder::Show { model: self.find_model(head, &name)? }
        };
        let (act, name) = match &order {
            FlagsOrder::Show { .. } | FlagsOrder::Plan { .. } => (None, String::new()),
            FlagsOrder::Save { model, .. } => {
                (Some("change flags"), self.service.local().listing(*model).name)
            }
            FlagsOrder::Undo { .. } => (Some("undo the change of flags"), String::new()),
        };
        let answer = self.service.local().flags(order).await?;
        if let Some(act) = act {
            self.audit(head, act, &name);
        }
        Ok(reply::json(&without_engine_words(answer)))
    }

    fn flags_order(&self, own: Own, head: &Parts, body: FlagsBody) -> Result<FlagsOrder, HttpProblem> {
        let FlagsBody { model, flags, digest } = body;
        let model = || self.find_model(head, &model.ok_or_else(|| missing("model"))?);
        let flags = || flags.ok_or_else(|| missing("flags"));
        let digest = || digest.ok_or_else(|| missing("digest"));
        Ok(match own {
            Own::UndoFlags => FlagsOrder::Undo { digest: digest()? },
            Own::SaveFlags => FlagsOrder::Save { model: model()?, flags: flags()?, digest: digest()? },
            _ => FlagsOrder::Plan { model: model()?, flags: flags()? },
        })
    }
}

fn missing(name: &str) -> HttpProblem {
    bad(format!("`{name}` is missing"))
}

fn bad(message: String) -> HttpProblem {
    HttpProblem::new(StatusCode::BAD_REQUEST, "bad_flags_order", message)
}
