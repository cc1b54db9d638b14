//! Tests of the translation of an engine's event stream into a stream of Ollama's API.

use plimsoll_fuzz::mutants;

use super::super::Endpoint;
use super::*;

const EVENTS: &str = ": a comment\n\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n\
    event: x\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"he\"}}]}\r\n\r\n\
    data:{\"choices\":[{\"delta\":{\"content\":\"llo\",\"reasoning_content\":\"h\u{e4}\"}}]}\r\r\
    data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\"\"}}]}}]}\n\n\
    data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\":1}\"}}]}}]}\n\n\
    data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n\
    data: {\"choices\":[],\n\ndata: ";

fn stream() -> OllamaLines {
    let answer = PartialAnswer::new(Endpoint::Chat, "m".to_owned());
    OllamaLines::new(answer, Instant::now(), Duration::ZERO)
}

fn fed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, ends: bool) -> Vec<Value> {
    let (mut stream, mut lines) = (stream(), Vec::new());
    pieces.into_iter().for_each(|piece| stream.feed(piece, &mut lines));
    if ends {
        stream.end(&mut lines);
    }
    let text = String::from_utf8(lines).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A good stream: up to the finish reason, then usage and the end.
fn good() -> String {
    let (good, _) = EVENTS.split_once("data: {\"choices\":[],").unwrap();
    format!(
        "{good}data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":3,\"completion_tokens\":2}}}}\n\ndata: [DONE]\n\n"
    )
}

fn check(lines: &[Value]) {
    let stated: Vec<&str> = lines.iter().map(|line| line["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(stated, ["he", "llo", "", ""]);
    assert_eq!(lines[1]["message"]["thinking"], "hä");
    assert_eq!(lines[2]["message"]["tool_calls"][0]["function"]["arguments"], json!({"a": 1}));
    let last = &lines[3];
    assert_eq!((&last["done"], &last["done_reason"]), (&json!(true), &json!("length")));
    assert_eq!((&last["prompt_eval_count"], &last["eval_count"]), (&json!(3), &json!(2)));
    assert!(lines[..3].iter().all(|line| line["done"] == json!(false)));
}

#[test]
fn a_stream_becomes_lines_for_every_size_of_its_pieces() {
    let text = good();
    for size in 1..=text.len() {
        check(&fed(text.as_bytes().chunks(size), true));
    }
}

#[test]
fn a_stream_that_stops_anywhere_ends_in_an_error_or_in_its_last_object() {
    let text = good();
    for cut in 0..text.len() {
        let lines = fed([&text.as_bytes()[..cut]], true);
        let last = lines.last().unwrap();
        assert!(last["done"] == json!(true) || last["error"].is_string(), "{cut}: {last}");
        assert_eq!(
            lines.iter().filter(|line| !line["error"].is_null() || line["done"] == json!(true)).count(),
            1
        );
    }
}

#[test]
fn an_error_within_the_stream_is_the_last_line() {
    for (event, words) in [
        ("data: {\"error\":{\"message\":\"boom\"}}\n\n", "boom"),
        ("data: nonsense\n\n", "not JSON of the OpenAI API"),
        ("data: {\"choices\":[{\"delta\":7}]}\n\n", "not JSON of the OpenAI API"),
    ] {
        let text = format!("{event}{}", good());
        let lines = fed([text.as_bytes()], true);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0]["error"].as_str().unwrap().contains(words), "{lines:?}");
    }
}

#[test]
fn an_endless_event_is_held_up_to_a_bound() {
    let (mut stream, mut lines) = (stream(), Vec::new());
    let piece = vec![b'x'; 64 * 1024];
    for _ in 0..1000 {
        stream.feed(&piece, &mut lines);
        assert!(stream.events.line.capacity() <= 2 * MOST_EVENT);
    }
    assert!(stream.has_failed());
    let error: Value = serde_json::from_slice(&lines).unwrap();
    assert!(error["error"].as_str().unwrap().contains("longer than 1048576 bytes"), "{error}");
}

#[test]
fn million_streams_become_lines_with_one_end() {
    let tokens: [&[u8]; 8] =
        [b"data: ", b"\n\n", b"\r", b"[DONE]", b"\"tool_calls\":", b"\"index\":9e9", b"{\"error\":", b"null"];
    mutants(&[good().as_bytes()], &tokens, |stream| {
        let lines = fed(stream.chunks(13), true);
        assert_eq!(lines.len(), fed([stream], true).len(), "however it is cut");
        let ends = lines.iter().filter(|line| line["done"] == json!(true) || !line["error"].is_null());
        assert_eq!(ends.count(), 1);
    });
}
