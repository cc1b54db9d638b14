//! Fuzz tests of all client input (request heads, bodies, model names, multipart forms) and of event streams.

use std::collections::VecDeque;

use bytes::Bytes;
use http::Method;
use plimsoll_fuzz::mutants;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::stub::*;
use crate::model_key::ModelKeySearch;
use crate::rope::tests::rope_of;
use crate::sse::EventGuard;
use crate::tokens::PromptTail;
use crate::{RequestPrompt, multipart, query};

const CHAT: &[u8] = br#"{"model":"real","stream":true,"n":2,"messages":[{"role":"user","content":"a \"model\": \u005f \ud83d\ude00"}],"max_tokens":9}"#;
const PROMPTS: &[u8] =
    br#"{"prompt":["a",[1,2]],"tools":[],"model" : "user/real:Q4","x":{"model":"no","y":[{"model":1}]}}"#;
const TOKENS: [&[u8]; 12] = [
    b"\"model\":",
    b"\"model\"",
    b"\\u00",
    b"\\ud800",
    b"{\"",
    b"}]",
    b"null",
    b"\"tools\":[{}]",
    b"\"n\":",
    b"\"image_url\"",
    b"\"max_tokens\":",
    b"1e400",
];
const FORM: &[u8] = b"--xyz\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nreal\r\n--xyz\r\nContent-Disposition: form-data; name=\"file\"; \
    filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\r\n--xyz--\r\n";
const STREAM: &[u8] = b"data: {\"a\":1}\r\n\r\n: note\n\nevent: x\rdata: 2\r\rdata: {\"usage\":{\"prompt_tokens\":3,\"total_tokens\":7}}\n\ndata: [DONE]\n\n";

#[test]
fn million_bodies_name_the_same_model_however_they_are_cut() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    mutants(&[CHAT, PROMPTS], &TOKENS, |body| {
        let name = |size: usize| {
            let mut search = ModelKeySearch::default();
            let rope = rope_of(body, &[size]);
            rope.chunks().for_each(|chunk| search.feed(chunk));
            search.finish(&rope)
        };
        let whole = name(body.len().max(1));
        assert_eq!(whole, name(7), "{}", String::from_utf8_lossy(body));
        if let Some(key) = whole {
            assert!(key.place.end <= body.len() && key.place.start < key.place.end);
        }
        let rope = rope_of(body, &[100]);
        for path in ["/v1/chat/completions", "/completion", "/v1/embeddings"] {
            let prompt = RequestPrompt { method: &Method::POST, path, body: &rope };
            runtime.block_on(prompt.bound());
        }
    });
}

#[test]
fn million_forms() {
    mutants(&[FORM], &[b"--xyz", b"\r\n\r\n", b"name=\"model\"", b"Content-Disposition:"], |form| {
        let place = |size| multipart::model(&rope_of(form, &[size]), "xyz").map(|key| key.place);
        let whole = place(form.len().max(1));
        assert_eq!(whole, place(5), "{}", String::from_utf8_lossy(form));
        assert!(whole.is_none_or(|place| place.end <= form.len()));
    });
    let types: [&[u8]; 2] =
        [b"multipart/form-data; boundary=xyz", b"multipart/form-data; charset=a; boundary=\"x y\""];
    mutants(&types, &[b"boundary=", b";"], |text| {
        if let Ok(text) = str::from_utf8(text) {
            let _ = multipart::boundary(text);
        }
    });
}

#[test]
fn million_event_streams_pass_whole_and_in_order() {
    mutants(&[STREAM], &[b"data: ", b"\n\n", b"\r\r", b"\r\n\r\n", b"\"usage\":"], |stream| {
        let (mut guard, mut tail, mut passed) =
            (EventGuard::default(), PromptTail::default(), VecDeque::new());
        for piece in stream.chunks(11) {
            let piece = Bytes::copy_from_slice(piece);
            tail.feed(&piece);
            guard.feed(piece, &mut passed);
        }
        guard.release(&mut passed);
        let passed: Vec<u8> = passed.iter().flat_map(|piece| piece.to_vec()).collect();
        assert_eq!(passed, stream);
        let _ = tail.tokens();
    });
}

#[test]
fn million_queries_and_paths() {
    let seeds: [&[u8]; 2] = [b"model=real&autoload=false&x=%20+%zz", b"/upstream/user%2Freal%3AQ4/v1/x%00"];
    mutants(&seeds, &[b"model=", b"%2e%2e", b"%", b"&", b"//"], |text| {
        if let Ok(text) = str::from_utf8(text) {
            let _ = query::parameter(Some(text), "model");
            let _ = query::decode_path(text);
        }
    });
}

#[test]
fn million_connections_are_answered_or_closed() {
    let seeds: [&[u8]; 4] = [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{\"model\":\"gone\"}",
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"mod\r\nb\r\nel\":\"gone\"}\r\n0\r\n\r\n",
        b"GET /v1/models?model=a HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nAuthorization: Bearer x\r\n\r\n",
    ];
    let tokens: [&[u8]; 8] = [
        b"Content-Length: ",
        b"Transfer-Encoding: chunked\r\n",
        b"\r\n\r\n",
        b"HTTP/1.0",
        b"Expect: 100-continue\r\n",
        b"Upgrade: h2c\r\n",
        b"Connection: ",
        b"OPTIONS ",
    ];
    let (created, mut created_here) = tokio::sync::mpsc::channel::<Vec<u8>>(64);
    let maker = std::thread::spawn(move || {
        mutants(&seeds, &tokens, |mutant| drop(created.blocking_send(mutant.to_vec())));
    });
    on_stage_of_many(|stage| async move {
        while let Some(mutant) = created_here.recv().await {
            let mut client = stage.client().await;
            // The server may close before it has read all.
            let _ = client.write_all(&mutant).await;
            let _ = client.shutdown().await;
            let mut answer = Vec::new();
            let _ = client.read_to_end(&mut answer).await;
            let shown =
                || format!("{}\n→ {}", String::from_utf8_lossy(&mutant), String::from_utf8_lossy(&answer));
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", shown());
        }
        stage.until_idle().await;
    });
    maker.join().unwrap();
}
