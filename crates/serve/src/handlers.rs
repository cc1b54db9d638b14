//! Connects the runtime to guard (the preloaded library), metrics, page cache, and other processes that can
//! free memory.

mod gauges;
mod guard;
mod neighbours;
mod unified;

use std::rc::Rc;
use std::time::Duration;

use plimsoll_base::Card;
use plimsoll_config::{GuardSettings, ReclaimBeforeLoad};
use plimsoll_process::confinement::EngineUser;

use self::gauges::Gauges;
use self::guard::GuardHandler;
use self::neighbours::Neighbours;
use self::unified::Unified;
use plimsoll_runtime::Extension;

/// Settings of the runtime's extensions.
#[derive(Debug)]
pub(crate) struct ExtensionSettings {
    /// Guard's settings for models that have none of their own.
    pub(crate) guard: GuardSettings,
    /// The user that engines run as, if it is another one.
    pub(crate) engine_user: Option<EngineUser>,
    /// Time that other processes get to release idle memory; zero sends no requests.
    pub(crate) ask: Duration,
    /// Action before a load, if cards share the host's memory; None if they do not.
    pub(crate) unified: Option<ReclaimBeforeLoad>,
}

/// Creates all extensions for these cards. The flag says that engines and other processes are asked to free
/// idle memory.
pub(crate) fn all<'a>(
    settings: ExtensionSettings,
    cards: impl Iterator<Item = &'a Card>,
) -> (Vec<Rc<dyn Extension>>, bool) {
    let guard = Rc::new(GuardHandler::new(
        settings.guard,
        settings.engine_user.as_ref(),
        cards.map(|card| card.kind),
    ));
    let asks = !settings.ask.is_zero();
    let mut extensions: Vec<Rc<dyn Extension>> = vec![
        Rc::clone(&guard) as Rc<dyn Extension>,
        Rc::new(Gauges::new(Rc::clone(&guard))),
        Rc::new(Neighbours::new(Rc::clone(&guard), settings.ask)),
    ];
    // Cards with memory of their own do not compete with the page cache.
    if let Some(reclaim) = settings.unified {
        extensions.push(Rc::new(Unified::new(guard, reclaim, settings.ask)));
    }
    (extensions, asks)
}
