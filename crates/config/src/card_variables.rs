//! Finds the environment variables in a model's `env` that select cards, such as `CUDA_VISIBLE_DEVICES`.
//!
//! The server selects the cards itself, so it removes these variables and warns.

use plimsoll_flags::{Warning, quoted};
use plimsoll_wire::env::CUDA_VISIBLE_DEVICES;

use crate::roster::ConfiguredModel;

/// Variables with which the daemon shows cards to engines, whatever the model's own `env` says.
const CARD_VARIABLES: [&str; 2] = [CUDA_VISIBLE_DEVICES, "CUDA_DEVICE_ORDER"];

impl ConfiguredModel {
    /// A warning for each variable of its `env` that the server sets itself.
    pub fn card_variables_left_out(&self) -> Vec<Warning> {
        let own = self.env.iter().filter(|(name, _)| is_of_cards(name));
        let reported = own.map(|(variable, value)| {
            let line = format!("{variable}={value}");
            let text = format!(
                "`{}` of `{}` is left out: plimsoll chooses the cards",
                quoted(&line),
                quoted(&self.name)
            );
            Warning::new(self.origin.0.clone(), text).hint(
                "write `cards = [\"GPU-…\"]` with the UUIDs of `nvidia-smi -L` to limit the model to some",
            )
        });
        reported.collect()
    }

    /// Removes these variables.
    pub fn remove_card_variables(&mut self) {
        self.env.retain(|(name, _)| !is_of_cards(name));
    }
}

fn is_of_cards(variable: &str) -> bool {
    CARD_VARIABLES.contains(&variable)
}
