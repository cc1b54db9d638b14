//! Contexts: what they take of a card, and those that the plan does not name.

use crate::hooks::hooks;

hooks! {
    in CUDA;
}
