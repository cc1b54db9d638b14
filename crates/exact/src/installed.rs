//! Finds an installed engine that can answer for the given cards.

use std::ffi::OsStr;
use std::time::Duration;

use plimsoll_base::{Card, CardKind};
use plimsoll_engine::program::{backend_names, is_shell_script};
use plimsoll_flags::ProgramKind;

use super::system::{ASKS_INSTALLED, SEARCHED};
use super::{Oracle, RunTerms};

/// Backends that compute on cards, by the names of their libraries.
const FOR_CARDS: [&str; 3] = ["cuda", "hip", "vulkan"];

/// The variable of ggml that names a backend elsewhere.
const NAMED_BACKEND: &str = "GGML_BACKEND_PATH";

/// Time limit of a run that the user did not ask for. The formulas answer at once if it passes.
const UNASKED: Duration = Duration::from_secs(5);

impl Oracle {
    /// The installed engine, where it can speak for these cards. `None` where a plan is by the formulas.
    pub fn installed(cards: &[Card], terms: RunTerms) -> Option<Self> {
        // An engine on the host allocates what it needs, and a stand-in for cards shows nothing of that.
        if !ASKS_INSTALLED || cards.is_empty() || cards.iter().any(|card| card.kind != CardKind::Cuda) {
            return None;
        }
        let terms = RunTerms { time: terms.time.min(UNASKED), ..terms };
        let oracle = Self::find(None, ProgramKind::LlamaServer, terms).ok()?;
        let path = &oracle.program.path;
        // A script may start the engine in a container.
        if is_shell_script(path) {
            return None;
        }
        let environment = &oracle.terms.environment;
        let backends = backend_names(path, environment.get(SEARCHED).unwrap_or(OsStr::new("")));
        let has_backend = environment.get(NAMED_BACKEND).is_some()
            || backends.is_empty()
            || FOR_CARDS.iter().any(|backend| backends.contains(*backend));
        has_backend.then_some(oracle)
    }
}
