//! Test of four models and eight clients with memory for some of the models: `bench/gpu/four.py` at a tenth
//! of the memory and time.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, Setup};
use crate::http::chat_stream;

/// Claims in MiB, and milliseconds of a load and of an answer: those of 2.8, 9.5, 12.6 and 34.5 GiB on an
/// H200.
const MODELS: [(&str, u64, u64, u64); 4] =
    [("m8", 280, 98, 5), ("l8", 950, 165, 8), ("oss", 1260, 196, 9), ("q30", 3450, 415, 18)];
const BUDGET: u64 = 4000 << 20;
const CLIENTS: u64 = 8;
const RUN: Duration = Duration::from_secs(6);

/// Waits for each model's answers.
type Waits = [Vec<Duration>; 4];

fn serve(hold: &str) -> Daemon {
    let setup = Setup::with_cards(&[&format!("name=host,kind=host,total={BUDGET}B")]);
    let setup = setup.config("[serve]\npatience = \"500ms\"\n");
    let model = |setup: Setup, (name, mib, load, answer): &(&str, u64, u64, u64)| {
        let script = format!("load_ms={load} delay_ms={answer}");
        setup.model(name, &format!("{mib}MiB"), &script, &format!("hold = \"{hold}\""))
    };
    MODELS.iter().fold(setup, model).start()
}

/// A client asks one model after the other, in an order of its own that is the same for each daemon.
fn client(daemon: &Daemon, number: u64, end: Instant) -> Waits {
    let mut waits = Waits::default();
    let mut state = number + 1;
    while Instant::now() < end {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let index = usize::try_from(state >> 62).expect("two bits");
        let requested = Instant::now();
        let answer = chat_stream(daemon.address, MODELS[index].0);
        assert!(answer.whole && answer.status == 200, "{}", answer.text());
        assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"), "{}", answer.text());
        waits[index].push(requested.elapsed());
    }
    waits
}

fn run(hold: &str) -> Waits {
    let daemon = &serve(hold);
    let (end, done) = (Instant::now() + RUN, &AtomicBool::new(false));
    thread::scope(|scope| {
        let watch = scope.spawn(move || {
            while !done.load(Relaxed) {
                assert!(daemon.claimed() <= BUDGET, "{} claimed", daemon.claimed());
                thread::sleep(Duration::from_millis(20));
            }
        });
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || client(daemon, number, end))).collect();
        let mut all = Waits::default();
        for client in clients {
            let waits = client.join().expect("no request fails");
            all.iter_mut().zip(waits).for_each(|(all, waits)| all.extend(waits));
        }
        done.store(true, Relaxed);
        watch.join().expect("the budget holds");
        all
    })
}

#[test]
fn long_four_models_answer_eight_clients_sooner_with_a_hold_than_with_a_load_for_each_call() {
    // Both at once, so that they meet the same machine.
    let (without, with) = thread::scope(|scope| {
        let without = scope.spawn(|| run("0s"));
        let with = run("1s");
        (without.join().expect("no request fails"), with)
    });
    let count = |waits: &Waits| waits.iter().map(Vec::len).sum::<usize>();
    let p99 = |waits: &[Duration]| {
        let mut waits = waits.to_vec();
        waits.sort_unstable();
        waits.get((waits.len() * 99).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
    };
    assert!(
        count(&with) * 4 >= count(&without) * 5,
        "{} with a hold, {} without",
        count(&with),
        count(&without)
    );
    let late: Vec<_> = with.iter().map(|waits| p99(waits)).collect();
    // A turn is the patience and a swap of 0.6 s; then comes a load.
    assert!(late.iter().all(|wait| *wait <= Duration::from_millis(2000)), "{late:?}");
    assert!(with.iter().all(|waits| waits.len() >= 10), "each model answers: {with:?}");
}
