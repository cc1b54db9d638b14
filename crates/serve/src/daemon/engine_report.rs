//! Log lines about the engine that runs models for which the configuration gives no command.

use std::path::Path;

use plimsoll_base::CardKind;
use plimsoll_launch::engine::{self, EngineOrigin, EngineProgram};
use plimsoll_scheduler::CardLimit;

/// Logs the engine, and warns where it cannot use the cards.
pub(super) fn tell(configured: Option<&[String]>, cards: &[CardLimit]) {
    let program = configured.and_then(|command| command.first()).map(Path::new);
    // Every model may have a command of its own, so that a missing engine is no fault yet.
    let Ok(program) = engine::find(program) else {
        return;
    };
    tracing::info!("engine {}", described(&program));
    if is_wasted(&program, cards) {
        tracing::warn!(
            "the engine computes on the CPU, and the cards stay unused: put a llama-server with CUDA on \
            PATH, or give its path with --engine"
        );
    }
}

fn described(program: &EngineProgram) -> String {
    let origin = match program.origin {
        EngineOrigin::Configured => "as configured",
        EngineOrigin::SearchPath => "found on PATH",
        EngineOrigin::Installed => "installed by plimsoll, CPU only",
    };
    format!("{} ({origin})", program.path.display())
}

/// The engine of `plimsoll engine install` has no backend for cards; of others, nothing is known without a start.
fn is_wasted(program: &EngineProgram, cards: &[CardLimit]) -> bool {
    let has_cards = cards.iter().any(|limit| limit.card.kind == CardKind::Cuda);
    has_cards && program.origin == EngineOrigin::Installed
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
        assert!(is_wasted(&program(EngineOrigin::Installed), &gpu));
        assert!(!is_wasted(&program(EngineOrigin::SearchPath), &gpu));
        let host = cards("name=a,total=8GiB,kind=host");
        assert!(!is_wasted(&program(EngineOrigin::Installed), &host));
        assert_eq!(
            described(&program(EngineOrigin::Installed)),
            "/x/llama-server (installed by plimsoll, CPU only)"
        );
    }
}
