//! Tests of a page's questions: ranges of a file in, documents of plans out.

use plimsoll_model::gguf::Header;
use plimsoll_model::{Dialect, Model};
use plimsoll_plan::{Estimate, Models, QuestionText, document};
use plimsoll_site::Session;
use serde_json::{Value, json};

use super::cases::{Case, Sample, fuzzed, recorded};

/// Sends a message, with the bytes of a part behind it.
fn send(talk: &mut impl FnMut(&[u8]) -> String, message: &Value, bytes: &[u8]) -> String {
    talk(&[format!("{message}\n").as_bytes(), bytes].concat())
}

/// Opens a file as the page does; `None` where its header is refused.
fn open(talk: &mut impl FnMut(&[u8]) -> String, file: &Sample) -> Option<u64> {
    let opened = send(talk, &json!({ "open": { "length": file.length } }), &[]);
    let mut state: Value = serde_json::from_str(&opened).unwrap();
    let number = state["file"].as_u64()?;
    while let Some(range) = state["wants"].as_array() {
        let [from, to] = [0, 1].map(|end| range[end].as_u64().unwrap());
        let take = json!({ "take": { "file": number, "start": from } });
        state = serde_json::from_str(&send(talk, &take, &file.part(from, to))).unwrap();
    }
    if state.get("error").is_some() {
        // As the page does: what is refused takes no memory.
        send(talk, &json!({ "close": { "files": [number] } }), &[]);
        return None;
    }
    Some(number)
}

/// Holds the conversation of a case, and returns the last reply: a document or an error.
pub(crate) fn converse(case: &Case, talk: &mut impl FnMut(&[u8]) -> String) -> Option<String> {
    let main = open(talk, &case.main)?;
    let draft: Vec<u64> = match &case.draft {
        Some(draft) => vec![open(talk, draft)?],
        None => Vec::new(),
    };
    let models = json!({ "main": [main], "draft": draft });
    let reply = send(talk, &json!({ "plan": { "models": models, "question": case.question } }), &[]);
    let files: Vec<u64> = draft.into_iter().chain([main]).collect();
    send(talk, &json!({ "close": { "files": files } }), &[]);
    Some(reply)
}

/// The document by the way of the command line: the whole header at once.
fn direct(case: &Case) -> Option<String> {
    let read = |file: &Sample| {
        let header = Header::read(&file.head, file.length, Dialect::Ggml).ok()?;
        Model::from_headers(&[header]).ok()
    };
    let draft = match &case.draft {
        Some(draft) => Some(read(draft)?),
        None => None,
    };
    let models = Models { draft, ..Models::from(read(&case.main)?) };
    let text: QuestionText = serde_json::from_value(case.question.clone()).unwrap();
    let question = text.read().ok()?;
    let estimate = Estimate { engine: question.engine, program: question.program, ..Estimate::new(models) };
    Some(document(&question.answer(&estimate).ok()?).unwrap())
}

/// Compares the page's documents with those of the command line, and returns how many there are.
fn compared(cases: &[Case]) -> usize {
    let mut session = Session::default();
    let mut plans = 0;
    for case in cases {
        let reply = converse(case, &mut |message| session.reply(message));
        let is_plan = reply.as_ref().is_some_and(|reply| !reply.starts_with("{\"error\""));
        assert_eq!(reply.filter(|_| is_plan), direct(case), "{}", case.question);
        plans += usize::from(is_plan);
    }
    plans
}

/// Every eighth row: the others ask the same of other flags.
#[test]
fn recorded_rows_are_planned_as_on_the_command_line() {
    let cases: Vec<Case> = recorded().into_iter().step_by(8).collect();
    assert_eq!(compared(&cases), cases.len());
}

#[test]
fn long_all_recorded_rows_are_planned_as_on_the_command_line() {
    let cases = recorded();
    assert!(cases.len() > 200);
    assert_eq!(compared(&cases), cases.len());
}

#[test]
fn damaged_headers_are_planned_or_refused_as_on_the_command_line() {
    let plans = compared(&fuzzed(100));
    assert!(plans > 10, "{plans} of 100");
}

#[test]
fn an_answer_has_the_plan_and_escaped_html() {
    let mut session = Session::default();
    let mut talk = |message: &[u8]| session.reply(message);
    let file = open(&mut talk, &recorded()[0].main).unwrap();
    let question = json!({ "flags": ["-c", "8192"], "cards": ["name=a<b>,total=24GiB,free=20GiB,cc=8.6"] });
    let message = json!({ "answer": { "models": { "main": [file] }, "question": question } });
    let answer: Value = serde_json::from_str(&send(&mut talk, &message, &[])).unwrap();
    let html = answer["html"].as_str().unwrap();
    assert_eq!(answer["plan"]["context"], 8192);
    for needed in ["a&lt;b&gt;", "load line", "source of the number", "Largest context that fits"] {
        assert!(html.contains(needed), "{needed} in {html}");
    }
    assert!(!html.contains("<b>") && !html.contains("style="), "{html}");
}

#[test]
fn a_repository_is_chosen_from_as_llama_server_chooses() {
    let mut session = Session::default();
    let files =
        json!([["m-Q4_K_M.gguf", 9], ["m-Q8_0.gguf", null], ["mmproj-F16.gguf", 3], ["README.md", 1]]);
    let choose = |tag: Option<&str>| json!({ "choose": { "files": files, "tag": tag } });
    let mut talk = |message: &[u8]| session.reply(message);
    let usual: Value = serde_json::from_str(&send(&mut talk, &choose(None), &[])).unwrap();
    assert_eq!(usual["chosen"], 0);
    assert_eq!(usual["quantisations"][1]["name"], "Q8_0");
    assert_eq!(usual["quantisations"][0]["projector"], "mmproj-F16.gguf");
    let none: Value = serde_json::from_str(&send(&mut talk, &choose(Some("Q2_K")), &[])).unwrap();
    assert!(none["chosen"].is_null() && none["why"].as_str().unwrap().contains("no file of quantisation"));
}

#[test]
fn a_message_without_an_answer_gets_the_reason() {
    let mut session = Session::default();
    for (message, reason) in [
        ("", "cannot be read"),
        ("{\"plan\":{}}", "cannot be read"),
        ("{\"take\":{\"file\":7,\"start\":0}}\nGGUF", "file 7, which is not open"),
        ("{\"check_card\":{\"card\":\"309O\"}}", "not a known card"),
        ("{\"plan\":{\"models\":{},\"question\":{\"cards\":[\"3090\"]}}}", "no model file"),
        ("{\"open\":{\"length\":1,\"engine\":\"ollama\"}}", "not a known engine"),
    ] {
        let reply: Value = serde_json::from_str(&session.reply(message.as_bytes())).unwrap();
        let error = reply["error"].as_str().unwrap_or_default();
        assert!(error.contains(reason), "{message}: {reply}");
    }
}
