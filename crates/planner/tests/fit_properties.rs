//! Property tests of every answer of `--fit`: its flags fit when they are planned, and one step more does
//! not.

use std::cell::{Cell, RefCell};

use plimsoll_base::{Card, Fact};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_model::Model;
use plimsoll_planner::fit::{
    ClosedForms, CostModel, Dimension, Fit, FitAnswer, PlanPrice, RequestChange, confirmed_context, edited,
    fit, likely_contexts,
};
use plimsoll_planner::{EngineBuild, Plan, PlanError, PlanRequest, plan};
use proptest::prelude::*;

use super::zoo;

fn shape(name: &str, layers: u32) -> Model {
    let recipe = plimsoll_specimens::Recipe { layers, ..plimsoll_specimens::shape(name).unwrap() };
    let draft = recipe.files(1).remove(0);
    zoo::read(&draft)
}

fn options(line: &str) -> Options {
    let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    Options::from_argv(&argv).unwrap()
}

/// A model on cards.
struct Case {
    model: Model,
    cards: Vec<Card>,
    options: Options,
}

impl Case {
    fn new(name: &str, layers: u32, free: &[u64], line: &str) -> Self {
        let card = |(at, free): (usize, &u64)| {
            format!("name=card{at},total=80GiB,free={free}MiB,cc=8.9").parse().unwrap()
        };
        Self {
            model: shape(name, layers),
            cards: free.iter().enumerate().map(card).collect(),
            options: options(line),
        }
    }

    fn ask<T>(&self, options: &Options, ask: impl FnOnce(&PlanRequest<'_>) -> T) -> T {
        let params = options.params(ProgramKind::LlamaServer).unwrap();
        ask(&PlanRequest {
            model: &self.model,
            draft: None,
            projector: None,
            params: &params,
            engine: EngineBuild::LLAMA_CPP,
            program: ProgramKind::LlamaServer,
            cards: &self.cards,
            contexts: &[],
            processor: None,
        })
    }

    fn fit(&self, dimensions: &[Dimension]) -> Result<Fit, PlanError> {
        self.ask(&self.options, |request| fit(request, &ClosedForms(*request), dimensions))
    }

    /// The plan with an answer's own flags at the end of the line.
    fn with(&self, flags: &str) -> Result<Plan, PlanError> {
        self.ask(&options(flags).merged_over(&self.options), plan)
    }

    fn planned(&self, answer: &FitAnswer) -> Plan {
        let change = answer.change.clone().unwrap();
        self.ask(&edited(&self.options, &[change]).unwrap(), plan).unwrap()
    }
}

/// The flags of one step beyond an answer.
fn beyond(answer: &FitAnswer) -> Option<String> {
    let value = answer.next.as_ref()?.value;
    let best = match answer.best {
        Some(Fact::Count(best)) => best,
        _ => 0,
    };
    let flags = answer.change.as_ref()?.flags();
    Some(match answer.dimension {
        Dimension::Context => format!("-c {value}"),
        Dimension::MicroBatch => format!("-b 16384 -ub {value}"),
        Dimension::Layers => format!("-ngl {value}"),
        Dimension::Experts => format!("--n-cpu-moe {value}"),
        _ => {
            let context: u64 = flags.last()?.parse().ok()?;
            format!("-np {value} -c {}", context / best * value)
        }
    })
}

const NUMBERS: [Dimension; 5] =
    [Dimension::Context, Dimension::MicroBatch, Dimension::Slots, Dimension::Layers, Dimension::Experts];

fn lines() -> impl Strategy<Value = String> {
    (
        prop::sample::select(vec!["-c 4096", "-c 40000", "", "-c 1000 -np 3", "-c 8192 -kvu -np 2"]),
        prop::sample::select(vec!["", "-ub 128", "-ub 2048"]),
        prop::sample::select(vec!["", "-ctk q8_0 -ctv q8_0", "-fa off"]),
        prop::sample::select(vec!["", "-ngl 3", "--no-op-offload", "-ts 3,1,1"]),
    )
        .prop_map(|(context, batch, cache, layers)| format!("{context} {batch} {cache} {layers}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn fit_answers_fit_in_the_plan_and_one_step_beyond_does_not(
        name in prop::sample::select(vec!["l8", "q30", "oss", "kimi-k2"]),
        line in lines(),
        free in prop::collection::vec(600_u64..40_000, 1..4),
    ) {
        let case = Case::new(name, 6, &free, &line);
        let answers = case.fit(&NUMBERS).unwrap().answers;
        for answer in answers.iter().filter(|answer| answer.change.is_some()) {
            let plan = case.planned(answer);
            prop_assert!(plan.fits, "{line}: {answer:?}");
            let peaks: Vec<_> = plan.cards.iter().map(|card| card.peak).collect();
            let stated: Vec<_> = answer.cards.iter().map(|card| card.peak).collect();
            prop_assert_eq!(peaks, stated);
            if let Some(flags) = beyond(answer) {
                let more = case.with(&flags);
                prop_assert!(more.is_err() || !more.unwrap().fits, "{} with {}: {:?}", line, flags, answer);
            }
        }
    }

    #[test]
    fn without_a_fit_answer_even_the_minimum_does_not_fit(
        name in prop::sample::select(vec!["l8", "q30"]),
        free in 400_u64..6_000,
    ) {
        let case = Case::new(name, 6, &[free], "-c 4096");
        let answers = case.fit(&NUMBERS).unwrap().answers;
        let none = |answer: &&FitAnswer| answer.change.is_none() && !answer.text.contains("no experts");
        for answer in answers.iter().filter(none) {
            let least = match answer.dimension {
                Dimension::Context => "-c 256",
                Dimension::MicroBatch => "-ub 128",
                Dimension::Slots => "-np 1",
                Dimension::Layers => "-ngl 0",
                _ => "--cpu-moe",
            };
            prop_assert!(!case.with(least).unwrap().fits, "{least}: {answer:?}");
        }
    }

    #[test]
    fn advice_that_is_enough_is_enough_and_saves_what_it_says(
        name in prop::sample::select(vec!["l8", "q30", "oss"]),
        line in lines(),
        free in prop::collection::vec(600_u64..20_000, 1..3),
    ) {
        let case = Case::new(name, 6, &free, &format!("{line} --swa-full"));
        let fit = case.fit(&[]).unwrap();
        prop_assert_eq!(fit.fits, fit.cards.iter().all(|card| card.headroom >= 0));
        prop_assert!(!fit.fits || fit.hints.is_empty());
        for hint in fit.hints.iter().filter(|hint| hint.saves.is_some()) {
            let Some(flags) = hint.advice.flags() else { continue };
            if hint.advice.to_string().contains("--swa-full") {
                continue;
            }
            let flags = flags.replace("-ub", "-b 2048 -ub");
            let after = case.with(&flags).unwrap();
            prop_assert_eq!(after.fits, hint.enough, "{} with {}: {}", line, flags, hint);
        }
    }

    #[test]
    fn a_division_fits_on_as_few_cards_as_it_says(
        name in prop::sample::select(vec!["l8", "q30", "kimi-k2"]),
        free in prop::collection::vec(1_000_u64..12_000, 2..5),
    ) {
        let case = Case::new(name, 8, &free, "-c 8192");
        let answer = &case.fit(&[Dimension::Split]).unwrap().answers[0];
        match &answer.change {
            Some(_) => prop_assert!(case.planned(answer).fits, "{}", answer.text),
            None => {
                for card in 0..free.len() {
                    let only = case.with(&format!("-dev CUDA{card}")).unwrap();
                    prop_assert!(!only.fits);
                }
            }
        }
    }
}

#[test]
fn a_better_division_is_found_where_the_engines_own_does_not_fit() {
    let found = (0..24).filter(|step| {
        let case = Case::new("llama-70b", 80, &[18_000, 24_000 + step * 250], "-c 4096 --fit off");
        let fit = case.fit(&[Dimension::Split]).unwrap();
        let answer = &fit.answers[0];
        if answer.change.is_some() {
            assert!(case.planned(answer).fits, "{}", answer.text);
        }
        answer.change.is_some() && !fit.fits
    });
    assert!(found.count() > 0, "the engine divides by free memory alone, and not every layer is equal");
}

#[test]
fn a_cache_type_is_the_best_that_reaches_the_context_and_none_that_the_engine_refuses() {
    let case = Case::new("l8", 32, &[10_000], "-c 70000");
    let fit = case.fit(&[Dimension::Cache]).unwrap();
    let answer = &fit.answers[0];
    let largest: Vec<_> = answer.trades.iter().map(|trade| (trade.flags.as_str(), trade.best)).collect();
    assert_eq!(answer.best, Some("q4_0".into()), "{largest:?}");
    assert!(largest.is_sorted_by_key(|(_, best)| *best), "{largest:?}");
    let off = Case::new("l8", 32, &[10_000], "-c 65536 -fa off");
    let fit = off.fit(&[Dimension::Cache]).unwrap();
    let answer = &fit.answers[0];
    assert!(answer.trades.iter().all(|trade| trade.flags.contains("f16")), "{answer:?}");
}

/// The formulas, which answer so many different questions and no more.
struct Patient<'a> {
    formulas: ClosedForms<'a>,
    left: Cell<usize>,
    answered: RefCell<Vec<Vec<RequestChange>>>,
    is_spent: Cell<bool>,
}

impl<'a> Patient<'a> {
    fn new(request: &PlanRequest<'a>, patience: usize) -> Self {
        Self {
            formulas: ClosedForms(*request),
            left: Cell::new(patience),
            answered: RefCell::default(),
            is_spent: Cell::default(),
        }
    }
}

impl CostModel for Patient<'_> {
    type Error = String;

    fn price(&self, changes: &[RequestChange], cards: &[Card]) -> Result<PlanPrice, String> {
        let known = self.answered.borrow().iter().any(|other| other == changes);
        if !known && self.left.get() == 0 {
            self.is_spent.set(true);
            return Err("asked too often".to_owned());
        }
        if !known {
            self.left.set(self.left.get() - 1);
            self.answered.borrow_mut().push(changes.to_vec());
        }
        self.formulas.price(changes, cards).map_err(|error| error.to_string())
    }

    fn is_spent(&self) -> bool {
        self.is_spent.get()
    }
}

#[test]
fn a_right_guess_is_confirmed_by_the_likely_pair() {
    let case = Case::new("l8", 32, &[12_000], "-c 4096");
    case.ask(&case.options, |request| {
        let largest = plan(request).unwrap().largest_context;
        let patient = Patient::new(request, 3);
        assert_eq!(confirmed_context(request, &patient, largest), Ok(largest));
        let answered = patient.answered.borrow();
        assert_eq!(answered[1..], likely_contexts(request, largest.unwrap()));
        for guess in [None, Some(256), Some(131_072), largest.map(|tokens| tokens + 2560)] {
            let patient = Patient::new(request, 8);
            assert_eq!(confirmed_context(request, &patient, guess), Ok(largest), "{guess:?}");
        }
    });
}

#[test]
fn with_open_questions_there_is_no_answer() {
    let case = Case::new("q30", 6, &[4_880], "-c 8192");
    let directions = [Dimension::Context, Dimension::Cache, Dimension::Experts];
    let whole = case.fit(&directions).unwrap();
    assert!(whole.answers.iter().all(|answer| answer.change.is_some()), "{whole:?}");
    let mut withheld = 0;
    case.ask(&case.options, |request| {
        let largest = plan(request).unwrap().largest_context;
        for patience in 1..80 {
            let patient = Patient::new(request, patience);
            let found = fit(request, &patient, &directions).unwrap();
            for (answer, known) in found.answers.iter().zip(&whole.answers) {
                if answer.change.is_some() {
                    assert_eq!((&answer.change, &answer.next), (&known.change, &known.next));
                } else {
                    assert!(answer.text.contains("unknown"), "{answer:?}");
                    withheld += 1;
                }
                assert!(answer.trades.iter().all(|trade| known.trades.contains(trade)));
            }
            let confirmed = confirmed_context(request, &Patient::new(request, patience), Some(256));
            match confirmed {
                Ok(confirmed) => assert_eq!(confirmed, largest),
                Err(seen) => assert!(seen <= largest, "{seen:?}"),
            }
        }
    });
    assert!(withheld > 0);
}
