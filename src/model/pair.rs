//! The tokens of a query and a document, as a reranker reads them.

use super::{Error, Model};
use crate::{
    Token,
    tokenizer::{Ends, Special},
};

/// The prompt of Qwen3's rerankers, for files that do not contain it.
const YES_OR_NO: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query \
    and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n\
    <Instruct>: Given a web search query, retrieve relevant passages that answer the query\n<Query>: {query}\n\
    <Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

const TEMPLATE: &str = "tokenizer.chat_template.rerank";
const ADD_SEPARATOR: &str = "tokenizer.ggml.add_sep_token";
pub(super) const SEPARATOR: &str = "tokenizer.ggml.seperator_token_id";

impl Model {
    /// Returns the tokens of a query and a document, for [`Pooling::Rank`](super::Pooling::Rank): the
    /// template of the file filled with both, or otherwise both with separators.
    ///
    /// # Errors
    /// As for [`Model::tokenizer`].
    pub fn pair(&self, query: &str, document: &str) -> Result<Vec<Token>, Error> {
        let in_file = |e: Error| e.of(self.path());
        let (metadata, tokenizer) = (self.metadata(), self.tokenizer()?);
        let template = metadata.string(TEMPLATE).map_err(|e| in_file(e.into()))?;
        let answers = self.config().causal && self.weights().head.classifier.is_none();
        if let Some(template) = template.or(answers.then_some(YES_OR_NO)) {
            let text = filled(template, query, document);
            return Ok(tokenizer.encode(text, Special::Parse, Ends::Add));
        }
        // [CLS] query [SEP] document [SEP] (BERT), or <s> query </s></s> document </s> (RoBERTa).
        let is_bert =
            metadata.string("tokenizer.ggml.model").is_ok_and(|model| model == Some("bert"));
        let adds = metadata.bool(ADD_SEPARATOR).map_err(|e| in_file(e.into()))?.unwrap_or(false);
        let separator = metadata.u32(SEPARATOR).map_err(|e| in_file(e.into()))?;
        let separator =
            separator.filter(|token| adds && !is_bert && (*token as usize) < tokenizer.len());
        let end = tokenizer.eos().filter(|_| tokenizer.adds_eos());
        let part = |text: &str| tokenizer.encode(text, Special::AsText, Ends::Omit);
        let mut tokens: Vec<Token> =
            tokenizer.bos().filter(|_| tokenizer.adds_bos()).into_iter().collect();
        tokens.extend(part(query));
        tokens.extend(end);
        tokens.extend(separator);
        tokens.extend(part(document));
        tokens.extend(end);
        Ok(tokens)
    }
}

/// Replaces `{query}` and `{document}` in a template. A query may contain `{document}`.
fn filled(template: &str, query: &str, document: &str) -> String {
    let parts = template.split("{query}").map(|part| part.replace("{document}", document));
    parts.collect::<Vec<_>>().join(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_filled_once() {
        assert_eq!(filled("q: {query}, d: {document}", "a", "b"), "q: a, d: b");
        assert_eq!(filled("{document}{query}", "{document}", "{query}"), "{query}{document}");
        assert_eq!(filled("{query} {query}", "a", ""), "a a");
    }
}
