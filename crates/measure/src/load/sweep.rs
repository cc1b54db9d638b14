//! Sweep: measures time and memory of a server for prompts of growing length.

use std::time::Duration;

use bytes::Bytes as Body;
use plimsoll_base::{Bytes, Order};
use tokio::time::sleep;

use super::answer::{LoadAnswer, LoadFailure};
use super::figures::Figures;
use super::prompt::{LoadPrompt, WordLength};
use super::server::LoadTarget;

/// Time for a server to release memory after an answer.
const CALM: Duration = Duration::from_millis(200);

/// Result of a sweep at one depth.
#[derive(Clone, Debug)]
pub struct SweepDepth {
    pub requested: u64,
    /// Prompt tokens by the server's count.
    pub tokens: u64,
    pub outcome: Result<Speeds, LoadFailure>,
    /// Memory after the answer.
    pub occupied: Vec<(String, Bytes)>,
    /// The server's process ended or was replaced meanwhile: times and memory are not those of one loaded
    /// model.
    pub disturbed: bool,
}

/// Tokens per second; `None` if there were too few tokens to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speeds {
    pub prompt: Option<f64>,
    pub answer: Option<f64>,
    pub first_token: Duration,
}

/// Results of a sweep.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// Memory before the first depth, with the model loaded.
    pub before: Vec<(String, Bytes)>,
    pub depths: Vec<SweepDepth>,
    /// plimsoll's learned growth of its engine, in bytes per token.
    pub learned: Option<u64>,
}

/// A server whose model is loaded, with its memory before the first depth.
#[derive(Clone, Debug)]
pub struct Warm {
    yardstick: WordLength,
    before: Vec<(String, Bytes)>,
    /// The server's process, if visible.
    pub pid: Option<u32>,
    /// llama.cpp build number, if reported.
    pub build: Option<u32>,
}

/// Loads the model, and measures memory before the first depth.
pub async fn warm_up(
    server: &LoadTarget,
    patience: Duration,
    figures: &mut Figures,
) -> Result<Warm, LoadFailure> {
    server.begin(patience).await?;
    let yardstick = server.yardstick(patience).await;
    let build = server.build().await;
    figures.follow(server).await;
    sleep(CALM).await;
    Ok(Warm {
        yardstick,
        before: figures.look(server).await,
        pid: figures.process().map(|process| process.pid),
        build,
    })
}

/// Sends one prompt per depth, the shallowest first, until one fails. `told` is called with each result.
pub async fn sweep(
    server: &LoadTarget,
    warm: &Warm,
    depths: &[u64],
    (answer, patience): (u64, Duration),
    figures: &mut Figures,
    reported: &mut dyn FnMut(&SweepDepth),
) -> Sweep {
    let mut client = server.client(patience);
    let mut sweep = Sweep { before: warm.before.clone(), ..Sweep::default() };
    let mut depths = depths.to_vec();
    // Ascending depths: a deep prompt first would leave its memory behind for the shallow ones.
    depths.order();
    depths.dedup();
    // The pid tells this sweep's prompts from those that an earlier one left in the cache.
    let nonces = (u64::from(std::process::id()) << 16)..;
    for (requested, nonce) in depths.into_iter().zip(nonces) {
        let answered = client.ask(request(server, warm.yardstick, requested, answer, nonce)).await;
        // Also after a failure: memory that stays in use after a refused prompt is a result.
        sleep(CALM).await;
        let known = figures.process();
        // Of another process the memory is followed from here on.
        figures.follow(server).await;
        let lives = known.is_some_and(|process| process.lives());
        let depth = SweepDepth {
            requested,
            tokens: answered.as_ref().ok().and_then(|answer| answer.prompt_tokens).unwrap_or(requested),
            outcome: answered.as_ref().map(Speeds::of).map_err(Clone::clone),
            occupied: figures.look(server).await,
            disturbed: known.is_some() && !lives,
        };
        reported(&depth);
        sweep.depths.push(depth);
        // Deeper prompts need more still, and a server that died cannot be measured.
        if answered.is_err() {
            break;
        }
    }
    // Only after the last depth has plimsoll learned from all of them.
    let running = if server.is_plimsoll { server.running().await } else { None };
    sweep.learned = running.and_then(|running| running["memory"]["growth"]["bytes_per_token"].as_u64());
    sweep
}

fn request(server: &LoadTarget, yardstick: WordLength, depth: u64, answer: u64, nonce: u64) -> Body {
    let prompt = LoadPrompt { depth, answer, number: depth, nonce };
    prompt.request(&server.model, yardstick)
}

impl Speeds {
    fn of(answer: &LoadAnswer) -> Self {
        // Cached tokens cost no time; counting them would overstate the speed.
        let fresh = answer.prompt_tokens.map(|all| all.saturating_sub(answer.cached_tokens.unwrap_or(0)));
        let time = answer.first_token.as_secs_f64();
        let ours = fresh
            .and_then(|tokens| u32::try_from(tokens).ok())
            .filter(|_| time > 0.0)
            .map(|tokens| f64::from(tokens) / time);
        Self { prompt: answer.prompt_speed.or(ours), answer: answer.speed(), first_token: answer.first_token }
    }
}

impl Sweep {
    /// Memory of each figure over depth in tokens, starting before the first depth.
    pub fn curves(&self) -> Vec<(&str, Vec<(u64, Bytes)>)> {
        let curve = |name: &str| {
            let occupied = |occupied: &[(String, Bytes)]| {
                occupied.iter().find(|(other, _)| other == name).map(|(_, occupied)| *occupied)
            };
            let before = occupied(&self.before).map(|occupied| (0, occupied));
            // A failed prompt may have ended anywhere before its depth, and another process began anew.
            let answered = self.depths.iter().filter(|depth| depth.outcome.is_ok() && !depth.disturbed);
            let after = answered.filter_map(|depth| Some((depth.tokens, occupied(&depth.occupied)?)));
            before.into_iter().chain(after).collect()
        };
        self.before.iter().map(|(name, _)| (name.as_str(), curve(name))).collect()
    }
}

/// Growth in bytes per token: the median slope over all pairs of depths (Theil-Sen), which is robust to
/// outliers.
pub fn slope(curve: &[(u64, Bytes)]) -> Option<f64> {
    let mut slopes: Vec<f64> = Vec::new();
    for (place, (tokens, occupied)) in curve.iter().enumerate() {
        for (deeper, later) in &curve[place + 1..] {
            let run =
                deeper.checked_sub(*tokens).and_then(|run| u32::try_from(run).ok()).filter(|run| *run > 0);
            // KiB fit into `u32` up to 4 TiB, and `u32` converts to `f64` without loss.
            let kib = |bytes: Bytes| u32::try_from(bytes.get() >> 10).map_or(f64::INFINITY, f64::from);
            slopes.extend(run.map(|run| (kib(*later) - kib(*occupied)) * 1024.0 / f64::from(run)));
        }
    }
    super::rounds::median(&mut slopes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_most_pairs() {
        let curve: Vec<(u64, Bytes)> = [1, 2, 4, 8, 16].map(|k| (k * 1024, Bytes::mib(100 + 2 * k))).to_vec();
        assert_eq!(slope(&curve), Some(2048.0));
        assert_eq!(slope(&curve[..1]), None);
    }
}
