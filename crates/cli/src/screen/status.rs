//! Prints a running server's status: its cards, and its models with their memory and requests.

use std::time::Duration;

use jiff::Timestamp;
use plimsoll_base::{Bytes, counted};
use plimsoll_verb::lasted;
use serde_json::Value;

/// Formats the JSON of `/api/status`. Fields that are missing are left out.
pub(crate) fn status(status: &Value) -> String {
    let list = |key: &str| status[key].as_array().map(Vec::as_slice).unwrap_or_default().to_vec();
    let mut cards = list("cards").iter().map(card).collect::<Vec<_>>();
    cards.extend(list("other_cards").iter().map(other_card));
    let now = status["now"].as_f64();
    let elsewhere = elsewhere(status);
    let models = list("models").iter().map(|entry| model(entry, now, &elsewhere)).collect::<Vec<_>>();
    let requests = list("requests").iter().map(|entry| request(entry, now)).collect::<Vec<_>>();
    let table = |head: &[&str], rows: Vec<Vec<String>>| {
        let head = head.iter().map(|&name| name.to_owned()).collect();
        plimsoll_report::aligned(&[vec![head], rows].concat())
    };
    let cards = table(&["CARD", "TOTAL", "BUDGET", "CLAIMED", "FOREIGN", "FREE"], cards);
    let models = table(&["MODEL", "STATE", "CLAIMED", "MEASURED", "REQUESTS", "LAST USED"], models);
    let refused: String = list("refused").iter().map(not_served).collect();
    let moved: String = list("moved_to_host").iter().map(moved).collect();
    let kept: String = list("cards").iter().filter_map(|card| kept(card, now)).collect();
    // Shown only if there are some, which is rare.
    let requests = if requests.is_empty() {
        String::new()
    } else {
        format!("\n{}", table(&["REQUEST", "MODEL", "ARRIVED", "STATE"], requests))
    };
    let downloads: String = list("downloads").iter().map(coming).collect();
    let downloads = if downloads.is_empty() { downloads } else { format!("\n{downloads}") };
    format!("{cards}{kept}\n{models}{moved}{refused}{downloads}{requests}")
}

/// A model of the configuration that is not served, with the mistakes in its flags.
fn not_served(entry: &Value) -> String {
    let mistakes = entry["mistakes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mistakes: Vec<&str> = mistakes.iter().filter_map(Value::as_str).collect();
    format!("{} is not served: {}\n", entry["name"].as_str().unwrap_or("?"), mistakes.join("; "))
}

/// A model of whose memory the driver has put some in the host's, instead of refusing it.
fn moved(entry: &Value) -> String {
    let (model, bytes) = (entry["model"].as_str().unwrap_or("?"), size(entry["bytes"].as_u64()));
    format!("{model} is slow: the driver has moved {bytes} of its memory from the card to host memory\n")
}

/// A download in progress, or one that failed.
fn coming(entry: &Value) -> String {
    let name = entry["name"].as_str().unwrap_or("?");
    match entry["error"].as_str() {
        Some(error) => format!("download of {name} failed: {error}\n"),
        None => format!("download of {}\n", download(entry, 0, Duration::ZERO)),
    }
}

/// Formats the progress of a download, of which `first` bytes had come so long ago.
pub(crate) fn download(entry: &Value, first: u64, since: Duration) -> String {
    let (done, total) = (entry["done"].as_u64(), entry["total"].as_u64());
    let part = done.zip(total).filter(|(_, total)| *total > 0);
    let part = part.map_or_else(String::new, |(done, total)| {
        format!(", {} %", u128::from(done.min(total)) * 100 / u128::from(total))
    });
    let came = done.map_or(0, |done| done.saturating_sub(first));
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let speed = Bytes::new(came).scaled(1000, millis.max(1));
    let left = done.zip(total).map(|(done, total)| total.saturating_sub(done));
    let left = left.filter(|_| !speed.is_zero() && millis > 0).and_then(|left| left.checked_div(speed.get()));
    let rate = left
        .map_or_else(String::new, |left| format!(", {speed}/s, {} left", lasted(left.saturating_mul(1000))));
    let name = entry["name"].as_str().unwrap_or("?");
    format!("{name}: {} of {}{part}{rate}", size(done), size(total))
}

/// Memory that a card keeps free for other programs.
fn kept(card: &Value, now: Option<f64>) -> Option<String> {
    let kept = card.get("yield").filter(|kept| kept.is_object())?;
    let left = now.zip(kept["until"].as_f64()).map(|(now, end)| end - now);
    Some(yielded(&card["name"], &kept["bytes"], &kept["lacks"], left))
}

/// Formats the JSON of `/api/yield`.
pub(crate) fn yields(answer: &Value) -> String {
    let yields = answer["yields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |one: &Value| yielded(&one["name"], &one["size"], &one["lacks"], one["for"].as_f64());
    match yields {
        [] => "no memory is kept free for other programs\n".to_owned(),
        yields => yields.iter().map(line).collect(),
    }
}

fn yielded(name: &Value, bytes: &Value, lacks: &Value, left: Option<f64>) -> String {
    let (name, bytes) = (name.as_str().unwrap_or("?"), size(bytes.as_u64()));
    let left = left.map_or_else(String::new, |left| format!(" for {}", time(left.max(0.0))));
    let lacks = match lacks.as_u64() {
        None | Some(0) => String::new(),
        Some(lacks) => format!("; models still hold {} of it", Bytes::new(lacks)),
    };
    format!("{name} keeps {bytes} free for other programs{left}{lacks}\n")
}

/// Loads, stops, failures and refusals that are shown, the newest last.
const MARKS: usize = 10;

/// Formats what the server did last, each with its reason.
pub(crate) fn marks(status: &Value) -> String {
    let list = |key: &str| status[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let now = status["now"].as_f64();
    let name = |id: &Value| list("models").iter().find(|model| model["id"] == *id)?["name"].as_str();
    let line = |mark: &Value| {
        // A stop says why; the end of its process adds nothing.
        let kind = mark["kind"].as_str().filter(|kind| *kind != "gone")?;
        let at = now.zip(mark["at"].as_f64()).map_or_else(String::new, |(now, at)| ago(now - at));
        let failure = in_a_line(&mark["failure"]["reason"]);
        let why = if failure.is_empty() { mark["text"].as_str().unwrap_or_default() } else { &failure };
        // Reasons of failures begin with the name.
        let of = name(&mark["model"]).or(mark["name"].as_str()).filter(|name| !why.starts_with(name));
        let of = of.map_or_else(String::new, |name| format!(" {name}"));
        let colon = if why.is_empty() { "" } else { ": " };
        let times = mark["failure"]["times"].as_u64().filter(|times| *times > 1);
        let times = times.map_or_else(String::new, |times| format!(" ({times} times)"));
        Some((at, format!("{kind}{of}{colon}{why}{times}")))
    };
    let lines: Vec<(String, String)> = list("marks").iter().filter_map(line).collect();
    let lines = &lines[lines.len().saturating_sub(MARKS)..];
    let width = lines.iter().map(|(at, _)| at.len()).max().unwrap_or_default();
    let shown: String = lines.iter().map(|(at, what)| format!("  {at:width$}  {what}\n")).collect();
    if shown.is_empty() { shown } else { format!("\nLATEST\n{shown}") }
}

/// A reason and its causes, without advice, which is no cause.
pub(crate) fn in_a_line(reason: &Value) -> String {
    let own = reason["text"].as_str().map(str::to_owned);
    let causes = reason["because"].as_array().into_iter().flatten();
    let causes = causes.filter(|cause| cause["code"] != "hint").map(in_a_line);
    own.into_iter().chain(causes).collect::<Vec<_>>().join(": ")
}

/// Formats what concerns the server itself. Fields that are missing are shown as `?`.
pub(crate) fn server(status: &Value, url: &str) -> String {
    let server = &status["server"];
    let number = |value: &Value| value.as_u64().map_or_else(|| "?".to_owned(), |number| number.to_string());
    let count = |name: &str| number(&server["requests"][name]);
    let models = status["models"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sum = |key: &str| models.iter().filter_map(|model| model[key].as_u64()).fold(0, u64::saturating_add);
    let started = server["started"].as_i64().and_then(|started| Timestamp::from_second(started).ok());
    format!(
        "plimsoll {} at {url}, process {}, up {} since {}\n\
        requests: {} answered, {} failed, {} abandoned; {} in progress, {} waiting\n\n",
        server["version"].as_str().unwrap_or("?"),
        number(&server["pid"]),
        server["uptime"].as_f64().map_or_else(|| "?".to_owned(), time),
        started.map_or_else(|| "?".to_owned(), |started| started.to_string()),
        count("answered"),
        count("failed"),
        count("abandoned"),
        sum("in_flight"),
        sum("queued"),
    ) + &fleet(status)
}

pub(super) fn time(seconds: f64) -> String {
    // Rounded, as a time that another program computed is a fraction off.
    let time = Duration::try_from_secs_f64(seconds.round()).ok();
    let milliseconds = time.and_then(|time| u64::try_from(time.as_millis()).ok());
    milliseconds.map_or_else(|| "?".to_owned(), lasted)
}

fn card(card: &Value) -> Vec<String> {
    let sizes = ["total", "capacity", "claimed", "foreign", "free"];
    let name = card["name"].as_str().unwrap_or("?").to_owned();
    std::iter::once(name).chain(sizes.map(|key| size(card[key].as_u64()))).collect()
}

/// A card that no model is placed on: all of its used memory is of other processes.
fn other_card(card: &Value) -> Vec<String> {
    let bytes = |key: &str| size(card[key].as_u64());
    let name = card["name"].as_str().unwrap_or("?").to_owned();
    vec![name, bytes("total"), "-".to_owned(), "-".to_owned(), bytes("used"), bytes("free")]
}

/// Models that sit on other hosts of the fleet, each with the host.
pub(super) fn elsewhere(status: &Value) -> Vec<(&str, &str)> {
    let fleet = &status["fleet"];
    let hosts = fleet["hosts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let others = hosts.iter().filter(|host| host["name"] != fleet["host"]);
    let models = others.flat_map(|host| {
        let models = host["models"].as_array().map(Vec::as_slice).unwrap_or_default();
        let name = host["name"].as_str().unwrap_or("?");
        models.iter().filter_map(move |model| Some((model["model"].as_str()?, name)))
    });
    models.collect()
}

/// The fleet as the server knows it: its hosts, their memory and models. Empty without any.
fn fleet(status: &Value) -> String {
    let fleet = &status["fleet"];
    let Some(hosts) = fleet["hosts"].as_array() else { return String::new() };
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let known =
        fleet["more"].as_u64().unwrap_or_default().saturating_add(hosts.len().try_into().unwrap_or(0));
    let store =
        if fleet["store_answers"] == true { "the store answers" } else { "the store does not answer" };
    let passed = fleet["passed_on"].as_u64().unwrap_or_default();
    let head = format!(
        "fleet: host {} of {}; {store}; {} passed on to other hosts\n",
        text(&fleet["host"]),
        counted(known, "host"),
        counted(passed, "request")
    );
    let lines = hosts.iter().map(|host| {
        let models = host["models"].as_array().map(Vec::as_slice).unwrap_or_default();
        let models: Vec<&str> = models.iter().filter_map(|model| model["model"].as_str()).collect();
        let models = if models.is_empty() { "no model".to_owned() } else { models.join(", ") };
        let drain = host["drain"].as_str().map_or_else(String::new, |drain| format!(", {drain}"));
        let (free, capacity) = (size(host["free"].as_u64()), size(host["capacity"].as_u64()));
        format!(
            "  {} at {}: {free} of {capacity} free{drain}; {models}\n",
            text(&host["name"]),
            text(&host["address"])
        )
    });
    lines.fold(head, |head, line| head + &line) + "\n"
}

fn model(model: &Value, now: Option<f64>, elsewhere: &[(&str, &str)]) -> Vec<String> {
    let is_loaded = !matches!(model["state"].as_str(), Some("unloaded" | "failed"));
    let host = elsewhere.iter().find(|(name, _)| !is_loaded && model["name"] == *name);
    let state = host.map_or_else(|| state(model, now), |(_, host)| format!("on {host}"));
    let idle = now.zip(model["last_used"].as_f64()).map(|(now, used)| last_used(model, now - used));
    vec![
        model["name"].as_str().unwrap_or("?").to_owned(),
        state,
        size(claimed(model)),
        size(measured(model)),
        requests(model),
        idle.unwrap_or_else(|| "-".to_owned()),
    ]
}

/// The age of a model's last use; a request in progress uses it now.
pub(super) fn last_used(model: &Value, age: f64) -> String {
    match model["in_flight"].as_u64() {
        None | Some(0) => ago(age),
        Some(_) => "now".to_owned(),
    }
}

/// A model's state, and its pin.
pub(super) fn state(model: &Value, now: Option<f64>) -> String {
    let pin_left = now.zip(model["pinned_until"].as_f64()).map(|(now, end)| time((end - now).max(0.0)));
    let pinned = match (model["pinned"].as_bool(), pin_left) {
        (Some(true), Some(left)) => format!(", pinned for {left}"),
        (Some(true), None) => ", pinned".to_owned(),
        _ => String::new(),
    };
    format!("{}{pinned}", model["state"].as_str().unwrap_or("?"))
}

/// Bytes that a model claims on all cards.
pub(super) fn claimed(model: &Value) -> Option<u64> {
    sum(&model["claim"])
}

/// Bytes that a model was measured to take on all cards.
pub(super) fn measured(model: &Value) -> Option<u64> {
    sum(&model["measured"])
}

fn sum(parts: &Value) -> Option<u64> {
    let parts = parts.as_array().filter(|parts| !parts.is_empty())?;
    let mut bytes = parts.iter().map(|part| part["bytes"].as_u64());
    bytes.try_fold(0_u64, |sum, part| sum.checked_add(part?))
}

/// Requests that the engine works on, that wait in it for a slot, and that wait for it in the server.
pub(super) fn requests(model: &Value) -> String {
    let number = |key: &str| model[key].as_u64();
    let sent = number("in_flight").unwrap_or_default();
    let running = number("slots").filter(|slots| *slots > 0).map_or(sent, |slots| slots.min(sent));
    let parts = [
        (running, "running"),
        (sent - running, "waiting in the engine"),
        (number("queued").unwrap_or_default(), "waiting"),
    ];
    let reported =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} {words}"));
    let reported: Vec<String> = reported.collect();
    if reported.is_empty() { "-".to_owned() } else { reported.join(", ") }
}

pub(super) fn ago(seconds: f64) -> String {
    format!("{} ago", time(seconds.max(0.0)))
}

fn request(request: &Value, now: Option<f64>) -> Vec<String> {
    let ago = |key: &str| Some(time((now? - request[key].as_f64()?).max(0.0)));
    let state = match (ago("sent"), request["waits_for"].as_str()) {
        (Some(sent), _) => format!("in progress for {sent}"),
        (None, Some(why)) => format!("waits: {why}"),
        (None, None) => "waits".to_owned(),
    };
    vec![
        request["id"].as_u64().map_or_else(|| "?".to_owned(), |id| id.to_string()),
        request["model"].as_str().unwrap_or("?").to_owned(),
        ago("arrived").map_or_else(|| "?".to_owned(), |ago| format!("{ago} ago")),
        state,
    ]
}

pub(super) fn size(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| Bytes::new(bytes).to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    #[test]
    fn cards_and_models_are_two_tables() {
        let gib = 1_u64 << 30;
        let status = json!({
            "now": 12.5,
            "cards": [{ "name": "RTX3090", "total": 24 * gib, "capacity": 20 * gib, "claimed": 9 * gib, "foreign": 0, "free": 11 * gib }],
            "other_cards": [
                { "name": "Arc B580", "total": 12 * gib, "used": 3 * gib, "free": 9 * gib },
                { "name": "Radeon", "total": null, "used": null, "free": null },
            ],
            "models": [
                { "name": "chat", "state": "ready", "pinned": true, "claim": [{ "card": "GPU-1", "bytes": 9 * gib }],
                  "measured": [], "in_flight": 1, "queued": 2, "last_used": 2.5 },
                { "name": "code", "state": "unloaded", "claim": [], "in_flight": 0, "queued": 0, "last_used": null },
            ],
        });
        let expected = "\
CARD          TOTAL     BUDGET   CLAIMED   FOREIGN       FREE
RTX3090   24576 MiB  20480 MiB  9216 MiB       0 B  11264 MiB
Arc B580  12288 MiB          -         -  3072 MiB   9216 MiB
Radeon            -          -         -         -          -

MODEL          STATE   CLAIMED  MEASURED              REQUESTS  LAST USED
chat   ready, pinned  9216 MiB         -  1 running, 2 waiting        now
code        unloaded         -         -                     -          -
";
        assert_eq!(super::status(&status), expected);
    }

    #[test]
    fn a_fleet_is_shown_by_its_hosts_and_a_model_by_the_host_on_which_it_is() {
        let host = |name: &str, drain: Option<&str>, models: &[&str]| {
            let models: Vec<_> = models.iter().map(|model| json!({ "model": model })).collect();
            json!({ "name": name, "address": "h:7079", "capacity": 8 << 20, "free": 3 << 20, "drain": drain, "models": models })
        };
        let status = json!({
            "models": [{ "name": "chat", "state": "failed" }, { "name": "code", "state": "ready" }],
            "fleet": { "host": "box-1", "store_answers": true, "passed_on": 7, "more": 0,
                "hosts": [host("box-1", None, &["code"]), host("box-2", Some("drains"), &["chat", "code"])] },
        });
        let expected = "\
fleet: host box-1 of 2 hosts; the store answers; 7 requests passed on to other hosts
  box-1 at h:7079: 3 MiB of 8 MiB free; code
  box-2 at h:7079: 3 MiB of 8 MiB free, drains; chat, code

";
        assert!(super::server(&status, "u").ends_with(expected), "{}", super::server(&status, "u"));
        let shown = super::status(&status);
        assert!(
            shown.contains("on box-2") && shown.contains("ready") && !shown.contains("failed"),
            "{shown}"
        );
        assert!(!super::server(&json!({}), "u").contains("fleet"));
    }

    #[test]
    fn requests_beyond_the_slots_of_an_engine_wait_in_it() {
        for (sent, slots, queued, reported) in [
            (0, Some(2), 0, "-"),
            (2, Some(2), 0, "2 running"),
            (3, Some(2), 0, "2 running, 1 waiting in the engine"),
            (3, Some(2), 4, "2 running, 1 waiting in the engine, 4 waiting"),
            (3, None, 4, "3 running, 4 waiting"),
            (0, None, 4, "4 waiting"),
            (1, Some(0), 0, "1 running"),
        ] {
            let model = json!({ "in_flight": sent, "slots": slots, "queued": queued });
            assert_eq!(super::requests(&model), reported);
        }
    }

    #[test]
    fn requests_that_have_not_ended_are_a_third_table() {
        let status = json!({
            "now": 100,
            "requests": [
                { "id": 7, "model": "chat", "arrived": 30, "sent": 40, "waits_for": null },
                { "id": 9, "model": "code", "arrived": 99, "sent": null, "waits_for": "the model is still loading" },
                {},
            ],
        });
        let expected = "\
REQUEST  MODEL         ARRIVED                              STATE
7         chat  1 min 10 s ago         in progress for 1 min 00 s
9         code         1 s ago  waits: the model is still loading
?            ?               ?                              waits
";
        let text = super::status(&status);
        assert!(text.ends_with(expected), "{text}\n{expected}");
    }

    #[test]
    fn a_server_is_two_lines() {
        let requests = json!({ "answered": 15, "failed": 2, "abandoned": 1 });
        let server = json!({
            "version": "0.1.0", "pid": 7, "started": 1_795_404_600, "uptime": 11_520, "requests": requests,
        });
        let model = json!({ "in_flight": 1, "queued": 2, "pinned": true, "pinned_until": 3690.5 });
        let status = json!({ "now": 90, "server": server, "models": [model.clone(), model] });
        let expected = "\
plimsoll 0.1.0 at http://x:1, process 7, up 3 h 12 min since 2026-11-23T03:30:00Z
requests: 15 answered, 2 failed, 1 abandoned; 2 in progress, 4 waiting

";
        assert_eq!(super::server(&status, "http://x:1"), expected);
        assert!(super::status(&status).contains("?, pinned for 1 h 00 min"), "{}", super::status(&status));
        for seconds in [-1.0, 0.0, 99.0, 5999.0, 1e5, 1e300, f64::INFINITY, f64::NAN] {
            assert!(!super::time(seconds).is_empty());
        }
    }

    #[test]
    fn kept_free_memory_is_a_line_below_the_cards() {
        let gib = 1_u64 << 30;
        let kept = json!({ "bytes": 8 * gib, "lacks": gib, "until": 3600.0 });
        let status = json!({ "now": 0.0, "cards": [{ "name": "RTX3090", "yield": kept }] });
        let line = "RTX3090 keeps 8192 MiB free for other programs for 1 h 00 min; models still hold 1024 MiB of it\n";
        assert!(super::status(&status).contains(line), "{}", super::status(&status));
        let one = json!({ "name": "RTX3090", "size": 8 * gib, "lacks": gib, "for": 3600 });
        assert_eq!(super::yields(&json!({ "yields": [one] })), line);
        assert_eq!(super::yields(&json!(null)), "no memory is kept free for other programs\n");
        assert!(super::yields(&json!({ "yields": [1] })).starts_with("? keeps - free"));
    }

    #[test]
    fn memory_that_the_driver_moved_is_a_line_below_the_models() {
        let text = super::status(&json!({ "moved_to_host": [{ "model": "m", "bytes": 700_u64 << 20 }] }));
        let line = "m is slow: the driver has moved 700 MiB of its memory from the card to host memory\n";
        assert!(text.ends_with(line), "{text}");
    }

    #[test]
    fn downloads_are_lines_below_the_models() {
        let mib = 1_u64 << 20;
        let coming = json!({ "name": "u/r:Q4", "done": 100 * mib, "total": 400 * mib });
        let failed = json!({ "name": "m", "error": "the disk is full" });
        let text = super::status(&json!({ "downloads": [coming.clone(), failed, {}] }));
        let lines = "\ndownload of u/r:Q4: 100 MiB of 400 MiB, 25 %\ndownload of m failed: the disk is full\n\
            download of ?: - of -\n";
        assert!(text.ends_with(lines), "{text}");
        let line = super::download(&coming, 50 * mib, Duration::from_secs(10));
        assert_eq!(line, "u/r:Q4: 100 MiB of 400 MiB, 25 %, 5 MiB/s, 1 min 00 s left");
    }

    #[test]
    fn any_json_is_shown_without_a_panic() {
        for status in [
            json!(null),
            json!({ "downloads": [null, 5, { "done": u64::MAX, "total": 1 }, { "done": 5, "total": 0 }, { "error": "x" }] }),
            json!([1]),
            json!({ "cards": [1, {}, { "yield": {} }], "models": [null, { "claim": [{ "bytes": u64::MAX }, { "bytes": -1 }] }] }),
        ] {
            assert!(super::status(&status).contains("MODEL"));
            assert!(super::server(&status, "x").starts_with("plimsoll ? at x"));
        }
    }
}
