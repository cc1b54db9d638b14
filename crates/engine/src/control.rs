//! Reads state lines from llama-server's stdout and sends one command on its stdin, as llama.cpp's router
//! does.
//!
//! The code follows `tools/server/server-models.cpp: router_child_states @ b10605`. Earlier builds print
//! other state names (`server-models.cpp: setup_child_server @ b8799`) and exit only after stdin closes.

use plimsoll_wire::control::{EARLY_READY, EARLY_SLEEP, STATE_PREFIX};
use serde_json::Value;

/// Content of a state line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LaunchState {
    /// `{"stages": […], "current": …, "value": 0..1}`.
    Loading(Value),
    /// The child's own entry of `/v1/models`.
    Ready(Value),
    Sleeping(Value),
}

/// Reads a line of stdout; `None` if it is not a known state line.
pub(super) fn state(line: &str) -> Option<LaunchState> {
    #[derive(serde::Deserialize)]
    struct ControlLine {
        state: String,
        #[serde(default)]
        payload: Value,
    }
    // The early builds' words are whole lines; text that only begins so is log.
    match line {
        EARLY_READY => return Some(LaunchState::Ready(Value::Null)),
        EARLY_SLEEP => return Some(LaunchState::Sleeping(Value::Null)),
        _ => {}
    }
    let ControlLine { state, payload } = serde_json::from_str(line.strip_prefix(STATE_PREFIX)?).ok()?;
    match state.as_str() {
        "loading" => Some(LaunchState::Loading(payload)),
        "ready" => Some(LaunchState::Ready(payload)),
        "sleeping" => Some(LaunchState::Sleeping(payload)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn states_are_read_and_everything_else_is_log() {
        let line = |text: &str| format!("{STATE_PREFIX}{text}");
        assert_eq!(
            state(&line(r#"{"state":"loading","payload":{"value":0.5}}"#)),
            Some(LaunchState::Loading(json!({"value": 0.5})))
        );
        assert_eq!(state(&line(r#"{"state":"ready"}"#)), Some(LaunchState::Ready(Value::Null)));
        assert_eq!(state(EARLY_READY), Some(LaunchState::Ready(Value::Null)));
        assert_eq!(state(EARLY_SLEEP), Some(LaunchState::Sleeping(Value::Null)));
        for other in [
            "ready",
            "cmd_child_to_router:ready or not",
            &line(r#"{"state":"dancing"}"#),
            &line("{"),
            &line("[]"),
            " cmd_child_to_router:state:{}",
        ] {
            assert_eq!(state(other), None, "{other}");
        }
    }
}
