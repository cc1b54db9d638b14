//! Tests of the cards' sensor readings under load, with the fake NVML.

use serde_json::json;

use crate::card::Card;
use crate::engine::Engine;
use crate::soak_in;

/// NVML's bits for a power cap and for heat.
const POWER_CAP: u64 = 0x4;
const HEAT: u64 = 0x20;

#[test]
fn a_card_that_is_slowed_down_by_heat_is_told_with_its_clock() {
    let feels = json!({ "celsius": 91, "megahertz": 1410, "most_megahertz": 1980, "milliwatts": 350_600, "slowed": POWER_CAP | HEAT });
    let card = Card::that_feels(feels);
    let engine = Engine::start("events=2 delay_ms=5");
    let page = card.path("soak.html").display().to_string();
    let arguments = ["--for", "3s", "--depths", "8", "--html", &page];
    let (output, json) = soak_in(&card.variables(), &engine.url(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let felt = &json["cards"][0];
    let one = |value: u64| json!({ "low": value, "high": value, "last": value });
    assert_eq!(felt["card"], "card 0 Fake 8G");
    assert_eq!(
        [&felt["celsius"], &felt["megahertz"], &felt["milliwatts"]],
        [&one(91), &one(1410), &one(350_600)]
    );
    // Looks are by the second, and the load is held for three.
    assert!(felt["looks"].as_u64().unwrap() >= 1, "{felt}");
    assert_eq!(felt["slowed"], json!({ "power cap": felt["looks"], "temperature": felt["looks"] }));
    let page = std::fs::read_to_string(page).unwrap();
    for text in ["91 to 91 °C", "1410 to 1410 MHz (at most 1980)", "SLOWED DOWN by temperature in", "351 W"]
    {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn a_card_that_tells_nothing_is_not_taken_to_be_slow() {
    let card = Card::new();
    let engine = Engine::start("events=2");
    let arguments = ["--requests", "40", "--depths", "8"];
    let (_, json) = soak_in(&card.variables(), &engine.url(), &arguments);
    let felt = &json["cards"][0];
    assert_eq!((&felt["celsius"], &felt["slowed"]), (&json!(null), &json!({})));
}
