//! Interface through which guard (the preloaded library), memory reclaim and metrics take part in the
//! runtime.
//!
//! Every method has a default that does nothing.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_base::{Bytes, Card, CardId, End, MemoryModel};
use plimsoll_doctor::RefusedAllocation;
use plimsoll_process::Environment;
use plimsoll_scheduler::{ModelId, SchedulerEffect};
use serde_json::Value;

use super::Runtime;
use super::run::EngineRun;
use plimsoll_route::Exposition;

/// Work of an extension before a load; dropped if the run is stopped in the meantime.
pub type BeforeLoad = Pin<Box<dyn Future<Output = ()>>>;

pub trait Extension {
    /// Starts background tasks.
    fn start(self: Rc<Self>, _runtime: &Rc<Runtime>) {}

    /// Takes an effect of the scheduler, after the runtime has carried it out.
    fn on_effect(&self, _runtime: &Rc<Runtime>, _effect: &SchedulerEffect) {}

    /// Takes the need of a model that was surveyed.
    fn surveyed(&self, _model: ModelId, _demand: &Arc<dyn MemoryModel>) {}

    /// Takes the need of a model on empty cards; `None` if it cannot run here.
    fn foreseen(&self, _model: ModelId, _demand: Option<&Arc<dyn MemoryModel>>) {}

    fn before_load(&self, _runtime: &Rc<Runtime>, _run: &Rc<EngineRun>) -> Option<BeforeLoad> {
        None
    }

    /// True if the layer of Vulkan in the engine can show it these cards alone.
    fn can_isolate(&self, _run: &EngineRun, _cards: &[&Card]) -> bool {
        false
    }

    /// Changes the environment of an engine that gets these cards.
    fn prepare(&self, _run: &EngineRun, _cards: &[&Card], _environment: &mut Environment) {}

    fn loaded(&self, _runtime: &Rc<Runtime>, _run: &Rc<EngineRun>) {}

    /// Memory of the run by another source than the driver.
    fn measured(&self, _runtime: &Runtime, _run: &EngineRun) -> Vec<(CardId, Bytes)> {
        Vec::new()
    }

    /// Host memory of the run that is no resident memory of its processes.
    fn spilled(&self, _run: &EngineRun) -> Bytes {
        Bytes::ZERO
    }

    /// True if the tokens of the run's answers matter.
    fn wants_tokens(&self, _run: &EngineRun) -> bool {
        false
    }

    /// Takes a complete answer and its tokens.
    fn answered(&self, _runtime: &Runtime, _run: &EngineRun, _tokens: u64) {}

    /// The last allocation that the run was refused, read while its process has just ended.
    fn last_refusal(&self, _runtime: &Runtime, _run: &EngineRun) -> Option<RefusedAllocation> {
        None
    }

    fn ended(&self, _runtime: &Runtime, _run: &EngineRun, _end: &End) {}

    /// Adds fields to the status document of displays.
    fn add_to_document(&self, _document: &mut Value) {}

    fn write_metrics(&self, _runtime: &Runtime, _page: &mut Exposition) {}
}
