//! Tests of memory plans, and of the limit that the host's memory sets to a plan.

use plimsoll_base::{Bytes, Card, Reason};
use plimsoll_flags::Options;
use plimsoll_model::gguf::Header;
use plimsoll_model::tiny::TinyModel;
use plimsoll_model::{Dialect, Model};
use plimsoll_plan::{Estimate, EstimateError, HostLimit, Models, PlannedHost, plan};
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
