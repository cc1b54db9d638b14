//! Answers `/api/yield`, by which an operator keeps memory of a card free for other programs.

use std::time::Duration;

use http::StatusCode;
use http::request::Parts;
use plimsoll_base::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{ClientBody, receive_order};
use super::model_service::{ModelService, RequestRouter};
use super::problem::HttpProblem;
use super::query;
use super::reply::{self, Reply};
use super::server::HttpServer;

/// `{"size": "8GiB", "card": "NAME", "for": "2h"}`; a number is bytes, or seconds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct YieldOrder {
    size: Value,
    card: Option<String>,
    #[serde(rename = "for")]
    time: Option<Value>,
}

impl YieldOrder {
    fn size(&self) -> Option<Bytes> {
        let size = match &self.size {
            Value::String(text) => text.parse().ok(),
            number => number.as_u64().map(Bytes::new),
        };
        size.filter(|size| !size.is_zero())
    }

    fn time(&self) -> Option<Duration> {
        let time = match &self.time {
            None | Some(Value::Null) => Some(Duration::MAX),
            Some(Value::String(text)) => plimsoll_config::parse_duration(text),
            Some(number) => number.as_u64().map(Duration::from_secs),
        };
        time.filter(|time| !time.is_zero())
    }
}

impl<H: RequestRouter> HttpServer<H> {
    /// The yields, each with the claims that still lie within it and the seconds that are left.
    pub(crate) fn yields(&self) -> Reply<H::Pass> {
        let snapshot = self.service.local().snapshot();
        let yields = snapshot.cards.iter().filter_map(|card| {
            let kept = card.yielded.as_ref()?;
            // Rounded up, because what lasts an hour has an hour left when it begins.
            let left = kept.until.map(|until| until.since(snapshot.now).as_millis().div_ceil(1000));
            let left = left.map(|left| u64::try_from(left).unwrap_or(u64::MAX));
            Some(json!({
                "card": card.id, "name": card.name, "size": kept.bytes, "lacks": kept.lacks, "for": left,
            }))
        });
        reply::json(&json!({ "yields": yields.collect::<Vec<_>>() }))
    }

    pub(crate) async fn give_way(
        &self,
        head: &Parts,
        body: ClientBody,
    ) -> Result<Reply<H::Pass>, HttpProblem> {
        let order = receive_order(body, &self.bodies, &self.settings.limits).await?;
        let order: YieldOrder = serde_json::from_slice(&order)
            .map_err(|error| bad(format!("the body is not a valid request to keep memory free: {error}")))?;
        let size = order
            .size()
            .ok_or_else(|| bad("`size` must be a size such as \"8GiB\", or a number of bytes"))?;
        let time =
            order.time().ok_or_else(|| bad("`for` must be a time such as \"2h\", or a number of seconds"))?;
        self.service.local().give_way(order.card.as_deref(), size, time).await?;
        self.audit(head, "yield", &size.to_string());
        Ok(self.yields())
    }

    /// `?card=NAME` ends one; without it all end.
    pub(crate) async fn end_yield(&self, head: &Parts) -> Result<Reply<H::Pass>, HttpProblem> {
        let card = query::parameter(head.uri.query(), "card");
        let in_force = self.in_force();
        self.service.local().give_way(card.as_deref(), Bytes::ZERO, Duration::ZERO).await?;
        if self.in_force() < in_force {
            self.audit(head, "end yield", card.as_deref().unwrap_or_default());
        }
        Ok(self.yields())
    }

    /// The number of yields.
    fn in_force(&self) -> usize {
        self.service.local().snapshot().cards.iter().filter(|card| card.yielded.is_some()).count()
    }
}

fn bad(message: impl Into<String>) -> HttpProblem {
    HttpProblem::new(StatusCode::BAD_REQUEST, "bad_yield", message)
}
