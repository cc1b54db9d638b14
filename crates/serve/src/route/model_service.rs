//! The interface between the HTTP side and the owner of the models.
//!
//! The owner decides about loads, queues and evictions; the data plane moves bytes. It learns where an
//! engine listens only from a [`Pass`], and while it holds the pass the engine stays.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use plimsoll_launch::Log;
use plimsoll_scheduler::{ClientId, ModelId, SchedulerSnapshot};

use super::connection::StallLimit;
use super::events::Events;
use super::exposition::Exposition;
use super::listing::ModelListing;
use super::problem::HttpProblem;
use super::prompt::RequestPrompt;
use super::upstream::Upstream;

/// Options of a request about its model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RouteOptions {
    /// `?autoload=`: whether a model that is not running may be loaded for this; `None` leaves it to the
    /// configuration.
    pub(crate) autoload: Option<bool>,
    /// The client, as far as clients can be told apart.
    pub(crate) client: ClientId,
}

pub(crate) trait ModelService: 'static {
    type Pass: Pass;

    /// Finds a model by its name or by an alias.
    fn resolve(&self, name: &str) -> Option<ModelId>;

    /// The names that a client may ask for, for people.
    fn names(&self) -> Vec<String>;

    /// Waits until the model may take this request; how deep `prompt` goes is asked only where that matters.
    /// Dropping the future gives the place in the queue up.
    fn admit(
        self: Rc<Self>,
        model: ModelId,
        wish: RouteOptions,
        prompt: RequestPrompt<'_>,
    ) -> impl Future<Output = Result<Self::Pass, HttpProblem>>;

    /// All models, in the order in which they are listed.
    fn models(&self) -> Vec<ModelId>;

    fn listing(&self, model: ModelId) -> ModelListing;

    /// Loads a model without a request; it is known not to run.
    fn load(&self, model: ModelId);

    /// Unloads a model; requests in flight finish.
    fn unload(&self, model: ModelId);

    /// Reads the configuration again.
    fn reload(&self) -> Result<(), HttpProblem>;

    fn snapshot(&self) -> SchedulerSnapshot;

    fn events(&self) -> &Events;

    /// The log of one model, or of all and of this program.
    fn log(&self, model: Option<ModelId>) -> Log;

    /// Adds what the owner counts: loads, evictions, failures.
    fn write_metrics(&self, page: &mut Exposition);
}

/// The right to send one request to one engine. Dropping it gives the request up: the client left.
pub(crate) trait Pass: Unpin + Sized + 'static {
    fn upstream(&self) -> &Rc<Upstream>;

    /// True if the depth of the answer is needed afterwards.
    fn counts_tokens(&self) -> bool;

    /// The time that the client may take nothing of its answer before it is given up. The owner of the models
    /// keeps a clone and shortens it while another request waits for the memory that this one holds.
    fn stall_limit(&self) -> StallLimit {
        StallLimit::default()
    }

    /// The answer is through, and had so many tokens, prompt included, if it said so.
    fn finished(self, tokens: Option<u64>);

    /// The engine went away before a byte of its answer reached the client: asks for another try.
    fn bounced(self, prompt: RequestPrompt<'_>) -> impl Future<Output = Result<Self, HttpProblem>>;

    /// The engine went away in the middle of its answer: asks what to tell the client. Should answer soon;
    /// the client waits for the last event of its stream.
    fn broke(self) -> Pin<Box<dyn Future<Output = HttpProblem>>>;
}
