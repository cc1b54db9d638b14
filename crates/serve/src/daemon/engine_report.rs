//! Logs which engine runs the models for which the configuration gives no command.

use std::collections::BTreeSet;
use std::path::Path;

use plimsoll_base::CardKind;
use plimsoll_engine::{
    program,
    program::{EngineOrigin, EngineProgram},
};
use plimsoll_scheduler::CardLimit;

/// Logs the engine, and warns where it cannot use the cards.
pub(super) fn notify(configured: Option<&[String]>, cards: &[CardLimit]) {
    let program = configured.and_then(|command| command.first()).map(Path::new);
    // Every model may have a command of its own, so that a missing engine is no fault yet.
    let Ok(program) = program::find(program) else {
        return;
    };
    let searched = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let backends = program::backend_names(&program.path, &searched);
    tracing::info!("engine {}", described(&program, &backends));
    if is_wasted(&program, &backends, cards) {
        tracing::warn!(
            "the engine computes on the CPU, and the cards stay unused: put a llama-server with CUDA on \
            PATH, or give its path with --engine"
        );
    }
}

fn described(program: &EngineProgram, backends: &BTreeSet<String>) -> String {
    let origin = match program.origin {
        EngineOrigin::Configured => "as configured",
        EngineOrigin::SearchPath => "found on PATH",
        EngineOrigin::Installed => "installed by plimsoll, CPU only",
    };
    let named = backends.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let named = if named.is_empty() { named } else { format!(", with the backends {named}") };
    format!("{} ({origin}){named}", program.path.display())
}

/// The engine of `plimsoll engine install` has no backend for cards, and neither has one whose only library
/// is that for the CPU; of others, nothing is known without a start.
fn is_wasted(program: &EngineProgram, backends: &BTreeSet<String>, cards: &[CardLimit]) -> bool {
    let has_cards = cards.iter().any(|limit| limit.card.kind == CardKind::Cuda);
    let is_for_cpu = program.origin == EngineOrigin::Installed || backends.iter().eq(["cpu"]);
    has_cards && is_for_cpu
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Bytes;

    use super::*;

    #[test]
    fn the_cpu_engine_beside_a_card_is_a_waste_and_is_named() {
        let program = |origin| EngineProgram { path: "/x/llama-server".into(), origin };
        let cards =
            |spec: &str| vec![CardLimit { card: spec.parse().unwrap(), budget: None, reserve: Bytes::ZERO }];
        let gpu = cards("name=a,total=8GiB");
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let (none, cpu, both) = (names(&[]), names(&["cpu"]), names(&["cpu", "cuda"]));
        assert!(is_wasted(&program(EngineOrigin::Installed), &none, &gpu));
        assert!(is_wasted(&program(EngineOrigin::SearchPath), &cpu, &gpu));
        assert!(!is_wasted(&program(EngineOrigin::SearchPath), &none, &gpu));
        assert!(!is_wasted(&program(EngineOrigin::SearchPath), &both, &gpu));
        let host = cards("name=a,total=8GiB,kind=host");
        assert!(!is_wasted(&program(EngineOrigin::Installed), &none, &host));
        assert_eq!(
            described(&program(EngineOrigin::Installed), &none),
            "/x/llama-server (installed by plimsoll, CPU only)"
        );
        assert_eq!(
            described(&program(EngineOrigin::SearchPath), &both),
            "/x/llama-server (found on PATH), with the backends cpu, cuda"
        );
    }
}
