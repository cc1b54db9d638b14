//! Decides whether a request is allowed: by the rights of its API key, and by the web page that sent it.

use std::time::Duration;

use http::StatusCode;
use http::request::Parts;
use plimsoll_base::{Advice, Hint};
use plimsoll_scheduler::{ClientId, ModelId};

use super::api::RouteMatch;
use super::auth::{KeyCheck, expired_key, wrong_key};
use super::connection::ClientConnection;
use super::cors;
use super::feed::Ending;
use super::model_service::{ModelService, RequestRouter};
use super::problem::HttpProblem;
use super::rights;
use super::server::HttpServer;
use super::standing_access::{AccessTerms, Reach, StandingAccess};
use super::websocket;

impl<H: RequestRouter> HttpServer<H> {
    /// Gives the place of a connection to the client whose request is let in; without a key, that of its
    /// address.
    pub(super) async fn let_in(
        &self,
        connection: &ClientConnection,
        client: Option<ClientId>,
    ) -> Result<(), HttpProblem> {
        let occupied = connection.occupied();
        let client = client.unwrap_or_else(|| occupied.place.stranger());
        let drop_slow = || self.bodies.drop_slowest_of(client, self.settings.limits.body_time);
        // Boxed, because few requests have to wait for a place, and the memory of each would have room for
        // it.
        let is_in =
            occupied.settle(client, drop_slow) || Box::pin(occupied.settle_in_time(client, drop_slow)).await;
        is_in.then_some(()).ok_or_else(no_place)
    }

    /// Checks the key of a request and the web page that it comes from, before anything is looked up for it.
    pub(super) async fn authorise(
        &self,
        head: &mut Parts,
        client: &ClientConnection,
        check: KeyCheck,
        found: &RouteMatch<'_>,
        has_own_origin: bool,
    ) -> Result<(), HttpProblem> {
        if found.action.is_public() {
            return Ok(());
        }
        let needed = rights::needed(found.action, head);
        let concerns_all = rights::concerns_all(found.action, head, found.rest);
        let number = match check {
            KeyCheck::Open => {
                self.let_in(client, None).await?;
                None
            }
            KeyCheck::Key(number, key) => {
                key.may(needed)?;
                if concerns_all {
                    key.may_reach_all()?;
                }
                self.let_in(client, Some(key.client)).await?;
                if key.is_named {
                    head.extensions.insert(number);
                }
                Some(number)
            }
            KeyCheck::Unknown | KeyCheck::Expired => {
                client.occupied().place.unsettle();
                self.wrong_keys.count();
                return Err(if matches!(check, KeyCheck::Expired) { expired_key() } else { wrong_key() });
            }
        };
        let upgrades = websocket::is_requested(head);
        // A websocket acts, and no browser keeps what it says from a foreign page.
        let changes = upgrades || found.action.changes(&head.method, head.uri.query());
        let is_foreign_script = !has_own_origin && cors::wants_service_worker(&head.headers);
        if is_foreign_script || !self.settings.origins.permit(changes, &head.headers) {
            return Err(foreign_page());
        }
        if upgrades || found.action.lives_on() {
            let reach = if concerns_all { Reach::All } else { Reach::Any };
            head.extensions.insert(AccessTerms { key: number, rights: needed, reach });
        }
        Ok(())
    }

    /// The end of a feed: that of the server, or of its client's access.
    pub(crate) fn ending(&self, head: &Parts) -> Ending {
        Ending::new(self.is_ending.subscribe(), self.access(head, None))
    }

    /// The same of a feed that is of one model.
    pub(crate) fn ending_of(&self, head: &Parts, model: ModelId) -> Ending {
        Ending::new(self.is_ending.subscribe(), self.access(head, Some(model)))
    }

    pub(super) fn access(&self, head: &Parts, model: Option<ModelId>) -> Option<StandingAccess> {
        let terms: &AccessTerms = head.extensions.get()?;
        let listing = model.map(|model| self.service.local().listing(model));
        let names = listing.map(|listing| std::iter::once(listing.name).chain(listing.aliases).collect());
        let reach = names.map_or_else(|| terms.reach.clone(), Reach::One);
        Some(StandingAccess { keys: self.settings.keys.clone(), terms: AccessTerms { reach, ..*terms } })
    }
}

fn foreign_page() -> HttpProblem {
    let message = "a web page from another origin may not send this request";
    HttpProblem::new(StatusCode::FORBIDDEN, "foreign_origin", message).hint(Hint::new(Advice::Other(
        "to allow the page, name its origin with --allow-origin, or in `allow-origins` under [serve]"
            .to_owned(),
    )))
}

fn no_place() -> HttpProblem {
    let message = "all connections of the server are in use, and no client holds more of them than this \
        one; close some";
    HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_connections", message)
        .retry_after(Duration::from_secs(1))
}
