//! `plimsoll top`: shows a running server full-screen; this event loop takes its snapshots and the keys.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use http::Method;
use http_body_util::BodyExt;
use plimsoll_cards::{Machine, Reading, Sampler};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{Event, KeyEvent, read};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{LONGEST_ANSWER, ServerAddress, ServerVerbError, block_on};
use crate::screen::{TopCommand, TopEffect, TopScreen};
use crate::terminal;

/// Time between two readings of the machine, and between two attempts to reach a server.
const PERIOD: Duration = Duration::from_secs(1);
/// Shortest time between two drawings: a busy server changes thousands of times a second.
const FRAME: Duration = Duration::from_millis(30);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without a server at the address, the cards of this machine and the processes on them are shown until one starts.

Keys: arrows or j, k select; s sort; / filter; l load; u unload; p pin or unpin; q quit.

Example: plimsoll top --url http://127.0.0.1:8080

Exit status: 0, or 1 if the server refuses or there is no terminal.")]
pub(crate) struct Top {
    #[command(flatten)]
    server: ServerAddress,
}

/// Event that changes the screen.
enum News {
    Status(Value),
    Machine(Box<(Machine, Reading)>),
    Key(KeyEvent),
    Resized,
    Stated(String),
    /// The server refuses the request, or the terminal is closed.
    Ended(Result<(), ServerVerbError>),
}

pub(crate) fn top(arguments: &Top) -> Result<ExitCode, ServerVerbError> {
    if !terminal::stdout_is_terminal() || !io::stdin().is_terminal() {
        return Err(ServerVerbError::NoTerminal);
    }
    // Also restores the terminal if the program panics.
    let mut terminal = ratatui::try_init()?;
    let result = block_on(run(&arguments.server, &mut terminal));
    ratatui::try_restore()?;
    result.map(|()| ExitCode::SUCCESS)
}

async fn run(server: &ServerAddress, terminal: &mut DefaultTerminal) -> Result<(), ServerVerbError> {
    let (news, mut inbox) = unbounded_channel();
    let keys = news.clone();
    thread::Builder::new().name("keys".to_owned()).spawn(move || read_keys(&keys))?;
    tokio::spawn(follow(server.clone(), news.clone()));
    let (mut term, mut hangup) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    tokio::select! {
        ended = show(server, terminal, &news, &mut inbox) => ended,
        _ = term.recv() => Ok(()),
        _ = hangup.recv() => Ok(()),
    }
}

async fn show(
    server: &ServerAddress,
    terminal: &mut DefaultTerminal,
    news: &UnboundedSender<News>,
    inbox: &mut UnboundedReceiver<News>,
) -> Result<(), ServerVerbError> {
    // https://no-color.org
    let mut screen = TopScreen::new(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()));
    let url = server.url.to_string();
    let mut last: Option<(Value, Instant)> = None;
    let mut tick = tokio::time::interval(PERIOD);
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        tokio::time::sleep(FRAME).await;
        let mut next = tokio::select! {
            next = inbox.recv() => next,
            _ = tick.tick() => None,
        };
        if let Some((status, at)) = last.as_mut().filter(|_| next.is_none()) {
            // Times since the last request go on between two snapshots.
            let mut status = status.clone();
            status["now"] = json!(status["now"].as_f64().unwrap_or_default() + at.elapsed().as_secs_f64());
            screen.show_server(&status, &url);
        }
        while let Some(item) = next {
            match item {
                News::Status(status) => {
                    screen.show_server(&status, &url);
                    last = Some((status, Instant::now()));
                }
                News::Machine(seen) => {
                    screen.show_machine(&seen.0, &seen.1);
                    last = None;
                }
                News::Stated(text) => screen.say(&text),
                News::Resized => {}
                News::Ended(result) => return result,
                News::Key(key) => match screen.press(key) {
                    Some(TopEffect::Quit) => return Ok(()),
                    Some(TopEffect::Send(command)) => {
                        drop(tokio::spawn(send(server.clone(), command, news.clone())))
                    }
                    Some(TopEffect::Draw) | None => {}
                },
            }
            next = inbox.try_recv().ok();
        }
    }
}

/// Sends a command; the answer becomes the screen's message.
async fn send(server: ServerAddress, command: TopCommand, news: UnboundedSender<News>) {
    let TopCommand { verb, model } = command;
    let text = match server.send(Method::POST, verb.path(), &json!({ "model": model })).await {
        Ok(_) => format!("{} {model}", verb.done()),
        Err(error) => error.to_string(),
    };
    let _ = news.send(News::Stated(text));
}

fn read_keys(news: &UnboundedSender<News>) {
    loop {
        let item = match read() {
            Ok(Event::Key(key)) => News::Key(key),
            Ok(Event::Resize(..)) => News::Resized,
            Ok(_) => continue,
            // The terminal is gone.
            Err(_) => News::Ended(Ok(())),
        };
        let is_last = matches!(item, News::Ended(_));
        if news.send(item).is_err() || is_last {
            return;
        }
    }
}

/// Passes a server's snapshots on, and readings of the machine while no server answers.
async fn follow(server: ServerAddress, news: UnboundedSender<News>) {
    let mut sampler = None;
    while !news.is_closed() {
        match snapshots(&server, &news).await {
            Ok(()) => {}
            Err(ServerVerbError::Unreachable { .. }) => {
                if sampler.is_none() {
                    sampler = Sampler::start().ok();
                }
                if let Some(sampler) = &sampler {
                    let (machine, reading) = (sampler.machine().await, sampler.read().await);
                    let seen = machine.map(|machine| News::Machine(Box::new((machine, reading))));
                    let _ = seen.is_some_and(|seen| news.send(seen).is_err());
                }
            }
            Err(error) => {
                let _ = news.send(News::Ended(Err(error)));
                return;
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

async fn snapshots(server: &ServerAddress, news: &UnboundedSender<News>) -> Result<(), ServerVerbError> {
    let (_client, answer) = server.send(Method::GET, "/api/status/stream", &Value::Null).await?;
    let mut answer = answer.into_body();
    let mut text = BytesMut::new();
    while let Some(frame) = answer.frame().await {
        let frame = frame.map_err(|error| server.unreachable(error.into()))?;
        text.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        while let Some(end) = memchr::memmem::find(&text, b"\n\n") {
            let event = text.split_to(end + 2);
            let Some(data) = event.strip_prefix(b"data: ") else { continue };
            let foreign = |error| ServerVerbError::Foreign { url: server.url.to_string(), error };
            let status = serde_json::from_slice(data).map_err(foreign)?;
            if news.send(News::Status(status)).is_err() {
                return Ok(());
            }
        }
        // Our servers end each event, so this is another program.
        if text.len() > LONGEST_ANSWER {
            return Err(ServerVerbError::Endless { url: server.url.to_string() });
        }
    }
    let _ = news.send(News::Stated(format!("{} no longer answers", server.url)));
    Ok(())
}
