//! Text of a running server's status: its cards, and its models with their memory and requests.

use plimsoll_base::Bytes;
use serde_json::Value;

/// Formats the JSON of `/api/status`. Fields that are missing are left out.
pub(crate) fn status(status: &Value) -> String {
    let list = |key: &str| status[key].as_array().map(Vec::as_slice).unwrap_or_default().to_vec();
    let cards = list("cards").iter().map(card).collect::<Vec<_>>();
    let now = status["now"].as_f64();
    let models = list("models").iter().map(|entry| model(entry, now)).collect::<Vec<_>>();
    let table = |head: [&str; 6], rows: Vec<Vec<String>>| {
        let head = head.map(str::to_owned).to_vec();
        plimsoll_report::aligned(&[vec![head], rows].concat())
    };
    let cards = table(["CARD", "TOTAL", "BUDGET", "CLAIMED", "FOREIGN", "FREE"], cards);
    let models = table(["MODEL", "STATE", "CLAIMED", "MEASURED", "REQUESTS", "LAST USED"], models);
    format!("{cards}\n{models}")
}

fn card(card: &Value) -> Vec<String> {
    let sizes = ["total", "capacity", "claimed", "foreign", "free"];
    let name = card["name"].as_str().unwrap_or("?").to_owned();
    std::iter::once(name).chain(sizes.map(|key| size(card[key].as_u64()))).collect()
}

fn model(model: &Value, now: Option<f64>) -> Vec<String> {
    let sum = |key: &str| {
        let parts = model[key].as_array().filter(|parts| !parts.is_empty())?;
        let mut bytes = parts.iter().map(|part| part["bytes"].as_u64());
        bytes.try_fold(0_u64, |sum, part| sum.checked_add(part?))
    };
    let pinned = model["pinned"].as_bool().unwrap_or_default();
    let state = model["state"].as_str().unwrap_or("?");
    let requests =
        match (model["in_flight"].as_u64().unwrap_or_default(), model["queued"].as_u64().unwrap_or_default())
        {
            (0, 0) => "-".to_owned(),
            (running, 0) => format!("{running} running"),
            (running, waiting) => format!("{running} running, {waiting} waiting"),
        };
    let idle =
        now.zip(model["last_used"].as_f64()).map(|(now, used)| format!("{:.0} s ago", (now - used).max(0.0)));
    vec![
        model["name"].as_str().unwrap_or("?").to_owned(),
        if pinned { format!("{state}, pinned") } else { state.to_owned() },
        size(sum("claim")),
        size(sum("measured")),
        requests,
        idle.unwrap_or_else(|| "-".to_owned()),
    ]
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| Bytes::new(bytes).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn cards_and_models_are_two_tables() {
        let gib = 1_u64 << 30;
        let status = json!({
            "now": 12.5,
            "cards": [{ "name": "RTX3090", "total": 24 * gib, "capacity": 20 * gib, "claimed": 9 * gib, "foreign": 0, "free": 11 * gib }],
            "models": [
                { "name": "chat", "state": "ready", "pinned": true, "claim": [{ "card": "GPU-1", "bytes": 9 * gib }],
                  "measured": [], "in_flight": 1, "queued": 2, "last_used": 2.5 },
                { "name": "code", "state": "unloaded", "claim": [], "in_flight": 0, "queued": 0, "last_used": null },
            ],
        });
        let expected = "\
CARD         TOTAL     BUDGET   CLAIMED  FOREIGN       FREE
RTX3090  24576 MiB  20480 MiB  9216 MiB      0 B  11264 MiB

MODEL          STATE   CLAIMED  MEASURED              REQUESTS  LAST USED
chat   ready, pinned  9216 MiB         -  1 running, 2 waiting   10 s ago
code        unloaded         -         -                     -          -
";
        assert_eq!(super::status(&status), expected);
    }

    #[test]
    fn any_json_is_shown_without_a_panic() {
        for status in [
            json!(null),
            json!([1]),
            json!({ "cards": [1, {}], "models": [null, { "claim": [{ "bytes": u64::MAX }, { "bytes": -1 }] }] }),
        ] {
            assert!(super::status(&status).contains("MODEL"));
        }
    }
}
