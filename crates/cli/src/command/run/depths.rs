//! Depths of llama-server's conversations, which guard needs to exchange weights for used positions of a cache.
//!
//! DECISION: the engine is asked for its slots (`GET /slots`), not its log or its memory. It is asked only while guard
//! reports on its page that it could exchange memory and that the engine computes. An engine that answers nothing,
//! because it has a key or was started with `--no-slots`, keeps the placement that it began with.

use std::path::Path;
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::Full;
use plimsoll_flags::Options;
use plimsoll_launch::{EngineAddress, HttpClient, collect_body};
use plimsoll_probe::guard::{read_pages, report_depths};
use plimsoll_wire::cache::CacheLayout;
use serde::Deserialize;
use tokio::time::{sleep, timeout};

/// Interval between questions. A batch of a prompt takes longer, and an answer grows by some twenty tokens meanwhile.
const PERIOD: Duration = Duration::from_millis(100);
/// Time for an answer, which a computing server gives between two batches.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// A list of slots shows the parameters of each last request.
const LONGEST_LIST: usize = 16 << 20;
/// The port that llama-server takes without one.
const PORT: u16 = 8080;
/// Positions beyond the used ones that are to be on the card at least: what an answer grows by in some intervals.
const AHEAD: u32 = 64;

/// Reporter of the depths in one llama-server.
#[derive(Debug)]
pub(super) struct DepthReporter {
    client: HttpClient,
    streams: usize,
    positions: u32,
    /// What the slots held at the last answer.
    before: Vec<u32>,
    reports: u32,
}

/// A slot, as `GET /slots` shows it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Slot {
    #[serde(default)]
    id: usize,
    #[serde(default)]
    is_processing: bool,
    /// Tokens in its cache; absent if it was never used (`server-context.cpp: to_json @ b11063`).
    #[serde(default)]
    n_prompt_tokens: u32,
}

impl DepthReporter {
    /// For a server that is started with these flags and has a cache of this layout.
    pub(super) fn new(flags: &Options, layout: &CacheLayout) -> Option<Self> {
        let port = flags.text("--port").map_or(Some(PORT), |port| port.parse().ok())?;
        Some(Self {
            client: HttpClient::of_engine(EngineAddress::Port(port)),
            streams: usize::try_from(layout.streams()).ok()?,
            positions: layout.positions(),
            before: Vec::new(),
            reports: 0,
        })
    }

    /// Reports to the processes with pages in `folder`, until it is dropped.
    pub(super) async fn report(mut self, folder: &Path) {
        let mut waits = 0;
        loop {
            sleep(PERIOD).await;
            let now = read_pages(folder).iter().map(|page| u64::from(page.waits)).sum();
            if std::mem::replace(&mut waits, now) == now {
                continue;
            }
            let Some(slots) = self.slots().await else {
                self.client.disconnect();
                continue;
            };
            let depths = self.depths(&slots);
            self.reports += 1;
            for page in read_pages(folder).iter().filter(|page| page.waits > 0) {
                // A process that has ended needs no report.
                let _ = report_depths(folder, page.pid, &depths, self.reports);
            }
        }
    }

    async fn slots(&mut self) -> Option<Vec<Slot>> {
        let request = Request::get("/slots").body(Full::default()).ok()?;
        let answer = timeout(ANSWER_WITHIN, self.client.send(request)).await.ok()?.ok()?;
        (answer.status() == StatusCode::OK).then_some(())?;
        let body = timeout(ANSWER_WITHIN, collect_body(answer, LONGEST_LIST)).await.ok()?.ok()?;
        serde_json::from_slice(&body).ok()
    }

    /// Positions of each stream that are in use, or soon will be.
    fn depths(&mut self, slots: &[Slot]) -> Vec<u32> {
        let before = std::mem::take(&mut self.before);
        self.before = vec![0; slots.len()];
        let mut depths = vec![0_u32; self.streams];
        for slot in slots {
            let used = slot.n_prompt_tokens;
            let last = before.get(slot.id).copied().unwrap_or(0);
            if let Some(place) = self.before.get_mut(slot.id) {
                *place = used;
            }
            // A prompt grows by a batch until the next answer, and by another one until what it says is done.
            let growth = used.saturating_sub(last).saturating_mul(2).max(AHEAD);
            let wanted = if slot.is_processing { used.saturating_add(growth) } else { used };
            // Slots that share a cache hold positions of it also while they are idle; of a stream's own cache an idle
            // slot reads nothing.
            let depth = match (self.streams, depths.get_mut(slot.id)) {
                (1, _) => depths.first_mut(),
                (_, depth) => depth.filter(|_| slot.is_processing),
            };
            if let Some(depth) = depth {
                *depth = depth.saturating_add(wanted).min(self.positions);
            }
        }
        depths
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use plimsoll_wire::page::{MAGIC, Page, VERSION};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn reporter(layout: &str) -> DepthReporter {
        DepthReporter::new(&Options::default(), &CacheLayout::read(layout).unwrap()).unwrap()
    }

    fn slot(id: usize, is_processing: bool, n_prompt_tokens: u32) -> Slot {
        Slot { id, is_processing, n_prompt_tokens }
    }

    #[test]
    fn a_prompt_is_reported_ahead_of_its_growth() {
        let mut of = reporter("1:8192:1x4/32768");
        assert_eq!(of.depths(&[slot(0, true, 2000)]), [6000]);
        assert_eq!(of.depths(&[slot(0, true, 3000)]), [5000]);
        assert_eq!(of.depths(&[slot(0, true, 3010)]), [3010 + AHEAD]);
        assert_eq!(of.depths(&[slot(0, true, 8100)]), [8192]);
        assert_eq!(of.depths(&[slot(0, false, 8100)]), [8100]);
    }

    #[test]
    fn slots_with_caches_of_their_own_are_reported_apart() {
        let mut of = reporter("2:8192:1x4/65536");
        assert_eq!(of.depths(&[slot(0, true, 10), slot(1, false, 500)]), [10 + AHEAD, 0]);
    }

    #[test]
    fn slots_that_share_a_cache_are_one_depth() {
        let mut of = reporter("1:8192:1x4/32768");
        assert_eq!(of.depths(&[slot(0, true, 10), slot(1, false, 500)]), [10 + AHEAD + 500]);
    }

    /// Answers one question of its slots.
    async fn answer(listener: &TcpListener, slots: &str) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        assert!(request[..length].starts_with(b"GET /slots "));
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", slots.len());
        stream.write_all((head + slots).as_bytes()).await.unwrap();
    }

    #[tokio::test]
    async fn a_computing_server_is_asked_and_its_depths_are_on_the_page() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let words = ["--port".to_owned(), listener.local_addr().unwrap().port().to_string()];
        let layout = CacheLayout::read("2:8192:1x4/65536").unwrap();
        let reporter = DepthReporter::new(&Options::from_argv(&words).unwrap(), &layout).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7.page");
        let mut page = vec![0; Page::SIZE];
        page[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        page[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        page[16..20].copy_from_slice(&7_u32.to_ne_bytes());
        // The process has waited for its card with a cache that can be exchanged.
        page[Page::WAITS_OFFSET] = 1;
        fs::write(&path, &page).unwrap();
        let slots = r#"[{"id":0,"is_processing":true,"n_prompt_tokens":1000,"params":{"seed":1}},{"id":1}]"#;
        let served = async {
            answer(&listener, slots).await;
            loop {
                let page = fs::read(&path).unwrap();
                let word = |at: usize| u32::from_ne_bytes(page[at..at + 4].try_into().unwrap());
                if word(Page::DEPTH_REPORTS_OFFSET) == 1 {
                    return [word(Page::DEPTHS_OFFSET), word(Page::DEPTHS_OFFSET + 4)];
                }
                sleep(PERIOD).await;
            }
        };
        let depths = tokio::select! {
            depths = served => depths,
            () = reporter.report(folder.path()) => unreachable!("it reports for ever"),
        };
        assert_eq!(depths, [3000, 0]);
    }
}
