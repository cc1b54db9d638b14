//! Prompts of growing depth: what each costs in time, and what the server holds after it.

use std::time::Duration;

use bytes::Bytes as Body;
use plimsoll_base::Bytes;
use tokio::time::sleep;

use super::answer::{Answer, Failure};
use super::figures::Figures;
use super::prompt::{Prompt, Yardstick};
use super::server::Server;

/// Time for a server to release the buffers of an answer.
const CALM: Duration = Duration::from_millis(200);

/// One depth.
#[derive(Clone, Debug)]
pub struct Depth {
    pub asked: u64,
    /// By the server's count.
    pub tokens: u64,
    pub outcome: Result<Speeds, Failure>,
    /// Memory held after the answer.
    pub held: Vec<(String, Bytes)>,
}

/// Tokens per second; `None` where there were too few to tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speeds {
    pub prompt: Option<f64>,
    pub answer: Option<f64>,
    pub first_token: Duration,
}

/// A whole sweep.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// Before the first depth, with the model loaded.
    pub before: Vec<(String, Bytes)>,
    pub depths: Vec<Depth>,
    /// Growth per token that plimsoll measured of its engine, where it serves the model.
    pub learned: Option<u64>,
}

/// A server that has its model and has answered once.
#[derive(Clone, Debug)]
pub struct Warm {
    yardstick: Yardstick,
    before: Vec<(String, Bytes)>,
    /// Its process, where it can be seen.
    pub pid: Option<u32>,
    /// Of llama.cpp, where it tells.
    pub build: Option<u32>,
}

/// Loads the model, and looks at the server before the first depth.
pub async fn warm_up(server: &Server, patience: Duration, figures: &mut Figures) -> Result<Warm, Failure> {
    server.begin(patience).await?;
    let yardstick = server.yardstick(patience).await;
    let build = server.build().await;
    figures.follow(server).await;
    sleep(CALM).await;
    Ok(Warm {
        yardstick,
        before: figures.look(server).await.held,
        pid: figures.process().map(|process| process.pid),
        build,
    })
}

/// Asks one prompt of each depth, the shallowest first; ends with the first that fails. `told` hears of each.
pub async fn sweep(
    server: &Server,
    warm: &Warm,
    depths: &[u64],
    (answer, patience): (u64, Duration),
    figures: &Figures,
    told: &mut dyn FnMut(&Depth),
) -> Sweep {
    let mut client = server.client(patience);
    let mut sweep = Sweep {
        before: warm.before.clone(),
        ..Sweep::default()
    };
    let mut depths = depths.to_vec();
    // Ascending depths: a deep prompt first would leave its memory behind for the shallow ones.
    depths.sort_unstable();
    depths.dedup();
    // Another sweep's prompts may still be cached.
    let nonces = (u64::from(std::process::id()) << 16)..;
    for (asked, nonce) in depths.into_iter().zip(nonces) {
        let answered = client
            .ask(request(server, warm.yardstick, asked, answer, nonce))
            .await;
        sleep(CALM).await;
        let depth = Depth {
            asked,
            tokens: answered
                .as_ref()
                .ok()
                .and_then(|answer| answer.prompt_tokens)
                .unwrap_or(asked),
            outcome: answered.as_ref().map(Speeds::of).map_err(Clone::clone),
            held: figures.look(server).await.held,
        };
        told(&depth);
        sweep.depths.push(depth);
        if answered.is_err() {
            break;
        }
    }
    let running = if server.is_plimsoll {
        server.running().await
    } else {
        None
    };
    sweep.learned = running.and_then(|running| running["memory"]["growth"]["bytes_per_token"].as_u64());
    sweep
}

fn request(server: &Server, yardstick: Yardstick, depth: u64, answer: u64, nonce: u64) -> Body {
    let prompt = Prompt {
        depth,
        answer,
        number: depth,
        nonce,
    };
    prompt.request(&server.model, yardstick).body
}

impl Speeds {
    fn of(answer: &Answer) -> Self {
        let fresh = answer
            .prompt_tokens
            .map(|all| all.saturating_sub(answer.cached_tokens.unwrap_or(0)));
        let time = answer.first_token.as_secs_f64();
        let ours = fresh
            .and_then(|tokens| u32::try_from(tokens).ok())
            .filter(|_| time > 0.0)
            .map(|tokens| f64::from(tokens) / time);
        Self {
            prompt: answer.prompt_speed.or(ours),
            answer: answer.speed(),
            first_token: answer.first_token,
        }
    }
}

impl Sweep {
    /// The figures, each with what was held at each depth in tokens, from before the first.
    pub fn curves(&self) -> Vec<(&str, Vec<(u64, Bytes)>)> {
        let curve = |name: &str| {
            let held = |held: &[(String, Bytes)]| {
                held.iter()
                    .find(|(other, _)| other == name)
                    .map(|(_, held)| *held)
            };
            let before = held(&self.before).map(|held| (0, held));
            // What failed is not known to have come to its depth.
            let answered = self.depths.iter().filter(|depth| depth.outcome.is_ok());
            let after = answered.filter_map(|depth| Some((depth.tokens, held(&depth.held)?)));
            before.into_iter().chain(after).collect()
        };
        self.before
            .iter()
            .map(|(name, _)| (name.as_str(), curve(name)))
            .collect()
    }
}

/// Bytes more per token more: the median over all pairs of depths, so that one odd depth moves it little.
pub fn slope(curve: &[(u64, Bytes)]) -> Option<f64> {
    let mut slopes: Vec<f64> = Vec::new();
    for (place, (tokens, held)) in curve.iter().enumerate() {
        for (deeper, later) in &curve[place + 1..] {
            let run = deeper
                .checked_sub(*tokens)
                .and_then(|run| u32::try_from(run).ok())
                .filter(|run| *run > 0);
            // KiB fit a u32 up to 4 TiB, and u32 converts to f64 without loss.
            let kib = |bytes: Bytes| u32::try_from(bytes.get() >> 10).map_or(f64::INFINITY, f64::from);
            slopes.extend(run.map(|run| (kib(*later) - kib(*held)) * 1024.0 / f64::from(run)));
        }
    }
    super::rounds::median(&mut slopes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_most_pairs() {
        let curve: Vec<(u64, Bytes)> = [1, 2, 4, 8, 16]
            .map(|k| (k * 1024, Bytes::mib(100 + 2 * k)))
            .to_vec();
        assert_eq!(slope(&curve), Some(2048.0));
        assert_eq!(slope(&curve[..1]), None);
    }
}
