//! Shows the memory of each device by model and by use (`/memory`), in the terms of llama-server's log.
//!
//! llama.cpp has no final design for such an endpoint (issue 26129). The names of the three uses follow its
//! proposal.

use serde_json::{Value, json};

use super::exposition::{Exposition, MetricKind};

/// The uses of a model's memory, and the planned terms that belong to each. The rest of the measured memory
/// is `other`.
const USES: [(&str, &[&str]); 3] =
    [("model", &["weights"]), ("context", &["kv"]), ("compute", &["compute", "pool"])];
const OTHER: &str = "other";

/// The devices of a status document.
pub(crate) fn devices(status: &Value) -> Value {
    let cards = status["cards"].as_array().into_iter().flatten();
    let devices = cards.map(|card| {
        let (total, used) = (card["total"].as_u64(), card["used"].as_u64());
        let parts = card["parts"].as_array().into_iter().flatten();
        let models = parts.filter(|part| part["kind"] == "model").map(|part| {
            let mut uses = uses(part);
            uses["name"] = part["name"].clone();
            uses
        });
        json!({
            "device": card["id"], "name": card["name"], "total": total, "used": used,
            "free": total.zip(used).map(|(total, used)| total.saturating_sub(used)),
            "models": models.collect::<Vec<_>>(),
        })
    });
    json!({ "devices": devices.collect::<Vec<_>>() })
}

/// Bytes by use; without a plan all of them are `other`.
fn uses(part: &Value) -> Value {
    let whole = part["bytes"].as_u64().unwrap_or_default();
    let terms: Vec<(&str, u64)> = part["terms"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|term| Some((term[0].as_str()?, term[1].as_u64()?)))
        .collect();
    let mut uses = json!({ "bytes": whole });
    let mut known = 0;
    for (name, words) in USES {
        let bytes: u64 = terms.iter().filter(|(term, _)| words.contains(term)).map(|(_, bytes)| bytes).sum();
        known += bytes;
        uses[name] = json!(bytes);
    }
    uses[OTHER] = json!(whole.saturating_sub(known));
    uses
}

/// Writes the same as metrics, a family for each use. Their names are those of llama.cpp's proposal with this
/// server's prefix: a colon is for recording rules.
pub(crate) fn write(page: &mut Exposition, status: &Value) {
    let devices = devices(status);
    let devices = || devices["devices"].as_array().into_iter().flatten();
    for (name, help) in [
        ("model", "Device memory used by a model's weights, where measured"),
        ("context", "Device memory used by a model's KV cache, where measured"),
        ("compute", "Device memory used by a model's compute buffers, where measured"),
        (
            OTHER,
            "Device memory used by a model for other purposes than weights, KV cache and compute buffers",
        ),
    ] {
        let family = format!("plimsoll_memory_{name}_bytes");
        page.family(&family, MetricKind::Gauge, help);
        for (at, device) in devices().enumerate() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            // Names of equal cards would make two series the same.
            let is_unique =
                devices().enumerate().all(|(place, other)| place == at || other["name"] != device["name"]);
            let label = if is_unique {
                text(&device["name"])
            } else {
                format!("{} {}", text(&device["name"]), text(&device["device"]))
            };
            let mut models: Vec<(String, u64)> = Vec::new();
            for model in device["models"].as_array().into_iter().flatten() {
                let (who, bytes) = (text(&model["name"]), model[name].as_u64().unwrap_or_default());
                // A model may have two runs for a moment: one that drains, and the next.
                match models.iter_mut().find(|(known, _)| *known == who) {
                    Some((_, sum)) => *sum += bytes,
                    None => models.push((who, bytes)),
                }
            }
            for (model, bytes) in models {
                page.sample(&family, &[("device", &label), ("model", &model)], bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_add_up_and_equal_cards_are_distinguished() {
        let part = json!({ "kind": "model", "name": "a", "bytes": 100, "terms": [
            ["context", 5], ["weights", 60], ["kv", 20], ["compute", 3], ["pool", 2], ["growth", 10]] });
        let bare = json!({ "kind": "model", "name": "b", "bytes": 7 });
        let foreign = json!({ "kind": "foreign", "name": "x", "bytes": 9 });
        let card = |id: &str, parts: Value| json!({ "id": id, "name": "H200", "total": 500, "used": 116, "parts": parts });
        let status =
            json!({ "cards": [card("G1", json!([part, bare, foreign, part])), card("G2", Value::Null)] });
        let stated = devices(&status);
        assert_eq!(stated["devices"][0]["free"], 384);
        assert_eq!(
            stated["devices"][0]["models"][0],
            json!({ "name": "a", "bytes": 100, "model": 60, "context": 20, "compute": 5, "other": 15 })
        );
        assert_eq!(stated["devices"][0]["models"][1]["other"], 7);
        assert_eq!(stated["devices"][1]["models"], json!([]));
        let mut page = Exposition::default();
        write(&mut page, &status);
        let page = page.finish();
        assert!(page.contains("plimsoll_memory_model_bytes{device=\"H200 G1\",model=\"a\"} 120\n"), "{page}");
        assert!(page.contains("plimsoll_memory_other_bytes{device=\"H200 G1\",model=\"b\"} 7\n"), "{page}");
    }
}
