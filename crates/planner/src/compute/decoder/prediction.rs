//! Builds the compute graph of a layer that predicts a further token (MTP), from the next token's embedding
//! and the main layers' result.
//!
//! The code mirrors `models/qwen35.cpp, qwen35moe.cpp, qwen3next.cpp, glm4-moe.cpp: graph_mtp @ b11063`. A
//! file with several prediction layers has one graph for each; they are alike.

use crate::WantedRows;
use crate::compute::{Decoder, F32, I32, Id};

impl Decoder<'_> {
    pub(super) fn predict(&mut self) {
        let width = u64::from(self.layers.model.hyper.embedding);
        let shape = [width, self.tokens, 1, 1];
        let tokens = self.graph.input(I32, [self.tokens, 1, 1, 1]);
        let own_table = self.weight("nextn.embed_tokens.weight");
        let embedded = match own_table.or_else(|| self.outer("token_embd.weight")) {
            Some(table) => self.graph.gather(shape, table, tokens),
            None => self.graph.input(F32, shape),
        };
        let trunk = self.graph.input(F32, shape);
        let trunk = self.norm("nextn.hnorm", trunk);
        let embedded = self.norm("nextn.enorm", embedded);
        let both = self.graph.own([width.saturating_mul(2), self.tokens, 1, 1], &[embedded, trunk]);
        let input = self.linear("nextn.eh_proj", both).unwrap_or(both);
        let result = self.layer(input, true);
        self.finish_prediction(result);
    }

    fn finish_prediction(&mut self, current: Id) {
        let norm = self.weight("nextn.shared_head_norm.weight").or_else(|| self.outer("output_norm.weight"));
        let mut normed = match norm {
            Some(weight) => {
                let normed = self.bare_norm(current, false);
                self.graph.in_place(&[normed, weight])
            }
            None => current,
        };
        // The next prediction starts from it.
        self.graph.node_mut(normed).output = true;
        if self.variant.wanted == WantedRows::AfterLastNorm {
            normed = self.wanted_rows(normed);
        }
        let head = self.weight("nextn.shared_head_head.weight");
        let head = head.or_else(|| self.output_matrix());
        let result = head.map_or(normed, |head| self.graph.multiply(head, normed));
        self.graph.node_mut(result).output = true;
        self.graph.expand(result);
    }
}
