//! Finds the text of a request that the engine will tokenize in any case, from the body alone.

use serde::Deserialize;

use super::{CacheUse, PromptParameters, RequestPrompt, off_thread, text, use_of};

/// Text that is part of the engine's prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertainText {
    pub text: String,
    /// A chat's template stands between the text and the prompt.
    pub is_templated: bool,
}

// DECISION: of a chat only the last message, if that is the user's. Templates leave parts of earlier messages
// out, such as the thoughts of an assistant; the user's last words are what the prompt is for.
impl RequestPrompt<'_> {
    /// The text that is tokenized whole; `None` where the body has none.
    pub async fn certain_text(&self) -> Option<CertainText> {
        let works = use_of(self.method, self.path);
        // The text around a gap is cut to the size of the context.
        let is_read =
            matches!(works, CacheUse::Completes | CacheUse::Chats) && !self.path.ends_with("/infill");
        let body = is_read.then(|| self.body.clone())?;
        off_thread(self.body.len(), move || certain(&text(&body), works)).await.flatten()
    }
}

fn certain(body: &[u8], works: CacheUse) -> Option<CertainText> {
    match works {
        CacheUse::Completes => {
            let text = PromptParameters::read(body).prompt()?;
            Some(CertainText { text, is_templated: false })
        }
        _ => {
            let chat: Chat = serde_json::from_slice(body).ok()?;
            let last = chat.messages.into_iter().next_back().filter(|message| message.role == "user")?;
            Some(CertainText { text: last.content.text(), is_templated: true })
        }
    }
}

#[derive(Deserialize)]
struct Chat {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Content,
}

#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
    #[default]
    Nothing,
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

impl Content {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().map(|part| part.text).collect(),
            Self::Nothing => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str, works: CacheUse) -> Option<String> {
        certain(body.as_bytes(), works).map(|certain| certain.text)
    }

    #[test]
    fn of_a_chat_the_users_last_message_is_certain_and_of_a_completion_its_prompt() {
        let chat = |last: &str| format!(r#"{{"messages":[{{"role":"user","content":"before"}},{last}]}}"#);
        for (last, text) in [
            (r#"{"role":"user","content":"a\nb"}"#, Some("a\nb")),
            (
                r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"},{"text":"b"}]}"#,
                Some("ab"),
            ),
            (r#"{"role":"assistant","content":"a"}"#, None),
            (r#"{"role":"user","content":null}"#, Some("")),
        ] {
            assert_eq!(of(&chat(last), CacheUse::Chats).as_deref(), text, "{last}");
        }
        assert_eq!(of(r#"{"prompt":"the ship"}"#, CacheUse::Completes).as_deref(), Some("the ship"));
        for body in [r#"{"prompt":["a","b"]}"#, r#"{"prompt":[1,2]}"#, "{", "[]"] {
            assert_eq!(of(body, CacheUse::Completes), None, "{body}");
        }
        assert_eq!(of("{}", CacheUse::Chats), None);
    }
}
