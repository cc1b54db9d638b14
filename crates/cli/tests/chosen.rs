//! Tests of the flags that are chosen for a model without any: it fits on any set of cards, and takes no more
//! memory than needed.

use plimsoll_base::{Bytes, Card, CardSpec};
use plimsoll_flags::Options;
use plimsoll_model::gguf::Header;
use plimsoll_model::{Dialect, Model};
use plimsoll_plan::{Choice, ChoiceError, Estimate, HostLimit, PlannedHost};
use plimsoll_planner::HostRoom;
use plimsoll_specimens::{shape, specimen, specimens};

fn read(draft: &plimsoll_model::gguf::DraftHeader) -> Model {
    let bytes = draft.header();
    let length = u64::try_from(bytes.len()).unwrap() + draft.data_length().get();
    Model::from_headers(&[Header::read(&bytes, length, Dialect::Ggml).unwrap()]).unwrap()
}

fn model(name: &str) -> Model {
    shape(name).map_or_else(|| read(&specimen(name).unwrap()), |shape| read(&shape.files(1)[0]))
}

fn cards(specs: &[&str]) -> Vec<Card> {
    specs.iter().flat_map(|spec| spec.parse::<CardSpec>().unwrap().cards).collect()
}

fn options(flags: &str) -> Options {
    let words: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    Options::from_argv(&words).unwrap()
}

fn host(gib: u64) -> Option<PlannedHost> {
    let total = Bytes::gib(gib);
    Some(PlannedHost { room: HostRoom { total, free: total }, is_shared: false })
}

/// The choice, after its plan and its flags were found to fit.
fn chosen(name: &str, flags: &str, cards: &[Card], gib: u64) -> Result<Choice, ChoiceError> {
    chosen_of(name, &Estimate::new(model(name).into()), flags, cards, gib)
}

fn chosen_of(
    name: &str,
    estimate: &Estimate,
    flags: &str,
    cards: &[Card],
    gib: u64,
) -> Result<Choice, ChoiceError> {
    let limit = HostLimit { estimate, cards, host: host(gib) };
    let given = options(flags);
    let choice = limit.choose(&given)?;
    let own: Vec<Card> = choice.cards.iter().map(|&card| cards[card].clone()).collect();
    let on_own = HostLimit { cards: &own, ..limit };
    assert!(choice.plan.fits && on_own.fits_wholly(&choice.options), "{name}: {}", choice.why);
    // The words that a user would paste are the same request, on a machine with more cards too.
    let pasted = options(&[&choice.flags[..], &choice.devices].concat().join(" ")).merged_over(&given);
    assert!(limit.fits_wholly(&pasted), "{name}: {pasted:?}");
    Ok(choice)
}

#[test]
fn no_chosen_flags_exceed_the_cards() {
    let sets: [(&[&str], u64); 7] = [
        (&["3060"], 32),
        (&["4060 Ti 16GB", "2x3090"], 64),
        (&["name=small,total=6GiB,free=5GiB,cc=8.6"], 16),
        (&["name=busy,total=24GiB,free=700MiB,cc=8.6", "name=old,total=8GiB,cc=6.1"], 8),
        (&["H200"], 512),
        (&["name=a,total=12GiB,cc=8.9", "name=b,total=12GiB,cc=8.9", "name=c,total=12GiB,cc=8.9"], 48),
        (&["kind=host,total=32GiB"], 32),
    ];
    let sets = sets.map(|(specs, gib)| (cards(specs), gib));
    let (mut fitting, mut refused) = (0, 0);
    for (name, _) in specimens().filter(|(name, _)| !name.ends_with("mmproj")) {
        let estimate = Estimate::new(model(name).into());
        for (cards, gib) in &sets {
            match chosen_of(name, &estimate, "", cards, *gib) {
                Ok(_) => fitting += 1,
                Err(ChoiceError::TooLarge { lacking, .. }) => {
                    assert!(!lacking.is_empty());
                    refused += 1;
                }
                Err(error) => panic!("{name} on {cards:?}: {error}"),
            }
        }
    }
    assert!(fitting > 5 * refused && refused > 0, "{fitting} chosen, {refused} refused");
}

#[test]
fn one_card_is_enough_for_a_model_that_fits_it_with_the_usual_context() {
    let cards = cards(&["3060", "3090"]);
    let choice = chosen("l8", "", &cards, 64).unwrap();
    assert_eq!((&choice.cards[..], choice.plan.context), (&[1][..], 32_768));
    assert_eq!(choice.flags, ["-c", "32768", "-np", "1"]);
    assert_eq!(choice.devices, ["-dev", "CUDA1"]);
    assert!(choice.why.starts_with("a context of 32768 of 131072 trained tokens on "), "{}", choice.why);
}

#[test]
fn more_cards_come_before_a_shorter_context_and_that_before_the_host() {
    let two =
        chosen("q30", "", &cards(&["name=a,total=12GiB,cc=8.6", "name=b,total=12GiB,cc=8.6"]), 64).unwrap();
    assert_eq!((two.cards.len(), two.plan.context), (2, 32_768));
    let short = chosen("l8", "", &cards(&["name=a,total=8GiB,free=6500MiB,cc=8.6"]), 64).unwrap();
    assert!((4096..32_768).contains(&short.plan.context), "{}", short.why);
    assert!(short.why.contains("the largest that fits"), "{}", short.why);
    let moved = chosen("q30", "", &cards(&["name=a,total=12GiB,cc=8.6"]), 64).unwrap();
    assert!(moved.flags.iter().any(|word| word == "--n-cpu-moe"), "{:?}", moved.flags);
    assert!(moved.why.contains("experts of"), "{}", moved.why);
    let layers = chosen("command-r", "", &cards(&["name=a,total=12GiB,cc=8.6"]), 64).unwrap();
    assert!(layers.flags.iter().any(|word| word == "-ngl"), "{:?}", layers.flags);
}

#[test]
fn a_context_that_costs_nothing_is_the_trained_one() {
    let choice = chosen("mamba2", "", &cards(&["3060"]), 32).unwrap();
    let trained = model("mamba2").hyper.context_train;
    assert_eq!(choice.plan.context, u64::from(trained), "{}", choice.why);
}

#[test]
fn given_flags_stay() {
    let cards = cards(&["3090"]);
    let choice = chosen("l8", "-c 8192 -np 2 -ctk q8_0 -ctv q8_0", &cards, 64).unwrap();
    assert_eq!((choice.plan.context, choice.flags.len()), (8192, 0));
    assert_eq!(choice.options.text("-ctk"), Some("q8_0"));
    let placed = chosen("l8", "-ngl 12", &cards, 64).unwrap();
    assert_eq!(placed.options.text("-ngl"), Some("12"));
    let embedding = chosen("nomic-embed", "--embeddings", &cards, 64).unwrap();
    assert_eq!(embedding.options.text("-ub"), Some("2048"));
}

#[test]
fn a_model_that_is_too_large_names_what_lacks() {
    let error = chosen("glm4-air", "", &cards(&["3060"]), 16).unwrap_err().to_string();
    assert!(error.contains("--n-cpu-moe") && error.contains("host memory are needed"), "{error}");
}
