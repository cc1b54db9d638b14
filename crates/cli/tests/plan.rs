//! Tests of memory plans, and of the limit that the host's memory sets to a plan.

use plimsoll_base::{Bytes, Card, Reason};
use plimsoll_flags::Options;
use plimsoll_model::gguf::Header;
use plimsoll_model::tiny::TinyModel;
use plimsoll_model::{Dialect, Model};
use plimsoll_plan::{
    Estimate, EstimateError, HostLimit, HostSize, Models, PlannedHost, QuestionError, QuestionText, document,
    plan,
};
use plimsoll_planner::HostRoom;

fn tiny() -> Model {
    let file = TinyModel::default().file();
    let header = Header::read(&file, u64::try_from(file.len()).unwrap(), Dialect::Ggml).unwrap();
    Model::from_headers(&[header]).unwrap()
}

fn cards() -> [Card; 1] {
    ["name=H200,total=143771MiB,free=140000MiB,cc=9.0".parse().unwrap()]
}

#[test]
fn a_plan_of_words_is_that_of_their_options() {
    let options = Options::from_argv(&["-c", "2048", "-ngl", "99"].map(str::to_owned)).unwrap();
    let of_options = Estimate::new(tiny().into()).plan(&options, &cards()).unwrap();
    let of_words = plan(tiny(), "-c 2048 -ngl 99", &cards()).unwrap();
    assert_eq!(of_words.context, 2048);
    assert_eq!(format!("{of_words:?}"), format!("{of_options:?}"));
}

#[test]
fn a_draft_is_planned_with_its_model() {
    let both = Models { draft: Some(tiny()), ..Models::from(tiny()) };
    let peak = |models| Estimate::new(models).plan(&Options::default(), &cards()).unwrap().cards[0].peak;
    assert!(peak(both) > peak(Models::from(tiny())));
}

#[test]
fn flags_that_cannot_be_planned_are_errors() {
    let failed = |flags: &str| plan(tiny(), flags, &cards()).unwrap_err();
    assert!(matches!(failed("--no-such-flag"), EstimateError::Flags(_)));
    assert!(matches!(failed("-mg 3 -sm none"), EstimateError::Plan(_)));
}

/// The cache is in host memory.
fn options(context: u64) -> Options {
    let words = ["-ngl", "0", "-c", &context.to_string()].map(str::to_owned);
    Options::from_argv(&words).unwrap()
}

fn host(total: Bytes) -> Option<PlannedHost> {
    Some(PlannedHost { room: HostRoom { total, free: total }, is_shared: false })
}

#[test]
fn the_largest_context_fits_the_host_too() {
    let (estimate, cards, requested) = (Estimate::new(tiny().into()), cards(), options(1 << 20));
    let peak = |context| estimate.plan(&options(context), &cards).unwrap().host.peak;
    let total = peak(1 << 18);
    let mut plan = estimate.plan(&requested, &cards).unwrap();
    assert_eq!(plan.largest_context, Some(1 << 20));
    let limit = HostLimit { estimate: &estimate, cards: &cards, host: host(total) };
    limit.limit_plan(&requested, &mut plan, vec![Reason::new("first", "a doubt about the input")]);
    let largest = plan.largest_context.unwrap();
    assert!(peak(largest) <= total && peak(largest + 256) > total, "{largest}");
    assert!(!plan.fits && !limit.fits_wholly(&requested) && limit.fits_wholly(&options(largest)));
    let codes: Vec<&str> = plan.warnings.iter().map(|reason| reason.code).take(2).collect();
    assert_eq!(codes, ["first", "host_memory_short"]);
}

#[test]
fn an_unknown_host_changes_no_verdict() {
    let (estimate, cards, requested) = (Estimate::new(tiny().into()), cards(), options(4096));
    let mut plan = estimate.plan(&requested, &cards).unwrap();
    let before = format!("{plan:?}");
    HostLimit { estimate: &estimate, cards: &cards, host: None }.limit_plan(
        &requested,
        &mut plan,
        Vec::new(),
    );
    assert_eq!(format!("{plan:?}"), before);
}

#[test]
fn cards_that_share_the_host_count_with_it() {
    let (estimate, cards, requested) = (Estimate::new(tiny().into()), cards(), options(4096));
    let plan = estimate.plan(&requested, &cards).unwrap();
    let room = HostRoom { total: plan.host.peak, free: plan.host.peak };
    let doubt = |is_shared| {
        let host = Some(PlannedHost { room, is_shared });
        HostLimit { estimate: &estimate, cards: &cards, host }.doubt(&plan, &requested).map(|(_, fits)| fits)
    };
    assert_eq!((doubt(false), doubt(true)), (None, Some(false)));
}

fn answered(json: &str) -> Result<String, QuestionError> {
    let question = QuestionText::from_json(json.as_bytes())?.read()?;
    let plan = question.answer(&Estimate::new(tiny().into()))?;
    Ok(document(&plan).unwrap())
}

#[test]
fn a_question_in_json_has_the_plan_of_its_flags_and_cards() {
    let stated: serde_json::Value = serde_json::from_str(
        &answered(r#"{ "flags": ["-c", "2048"], "cards": ["2x3090"], "host": "64GiB", "depth": 100 }"#)
            .unwrap(),
    )
    .unwrap();
    assert_eq!((&stated["schema"], &stated["context"]), (&"plimsoll.plan/1".into(), &2048.into()));
    let ids: Vec<&str> =
        stated["cards"].as_array().unwrap().iter().filter_map(|card| card["id"].as_str()).collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn a_question_that_cannot_be_answered_states_its_fault() {
    for (json, fault) in [
        ("[", "the question cannot be read: "),
        (r#"{ "flag": [] }"#, "unknown field `flag`"),
        (r#"{ "flags": ["-c"] }"#, "no card is given\nhint: "),
        (r#"{ "cards": ["3091"] }"#, "`3091` is not a known card"),
        (r#"{ "cards": ["3090"], "flags": ["--no-such-flag"] }"#, "unknown flag `--no-such-flag`"),
        (
            r#"{ "cards": ["3090"], "host": "32" }"#,
            "the host's memory cannot be read: `32` is 32 B; did you mean",
        ),
        (r#"{ "cards": ["3090"], "engine": "vllm" }"#, "`vllm` is not a known engine"),
        (r#"{ "cards": ["3090"], "engine": "llama.cpp@x" }"#, "`x` is not a build"),
        (r#"{ "cards": ["3090"], "program": "x" }"#, "`x` is not a program"),
        (r#"{ "cards": ["3090"], "flags": ["-c", "256"], "depth": 257 }"#, "hint: -c 257 extends it"),
    ] {
        let stated = answered(json).unwrap_err().to_string();
        assert!(stated.contains(fault), "{json}: {stated}");
    }
}

#[test]
fn a_host_needs_a_unit_and_may_be_named_total() {
    for text in ["32GiB", "total=32GiB"] {
        assert_eq!(text.parse(), Ok(HostSize(Bytes::gib(32))));
    }
    let address = "0.0.0.0".parse::<HostSize>().unwrap_err().to_string();
    assert!(address.contains("`--listen 0.0.0.0:8080`"), "{address}");
    for text in ["32", "", "total=", "much"] {
        assert!(text.parse::<HostSize>().is_err(), "{text}");
    }
}
