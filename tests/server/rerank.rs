//! `/v1/rerank` and its other names.

use serde_json::{Value, json};

use crate::server::harness::{PROMPT, Server, serve};
use rope_cpu_testing::reader::tiny_ranking;

const DOCUMENTS: [&str; 4] = ["the rain", "an inner north", "or there", "in the inn"];

fn ranking() -> (Server, tempfile::NamedTempFile) {
    let model = tiny_ranking(7);
    (Server::start(model.path(), &["-c", "256"]), model)
}

/// Returns the index and the score of each result, in their order.
fn results(answer: &Value, score: &str) -> Vec<(u64, f64)> {
    let pair =
        |result: &Value| (result["index"].as_u64().unwrap(), result[score].as_f64().unwrap());
    answer.as_array().unwrap().iter().map(pair).collect()
}

#[test]
fn documents_come_in_the_order_of_their_relevance() {
    let (server, _model) = ranking();
    let body = json!({ "query": PROMPT, "documents": DOCUMENTS });
    let answer = server.post("/v1/rerank", body.clone()).json();
    let ranked = results(&answer["results"], "relevance_score");
    assert!(ranked.is_sorted_by(|a, b| a.1 > b.1), "{ranked:?}");
    assert!(ranked.iter().all(|(_, score)| (0.0..=1.0).contains(score)), "{ranked:?}");
    let mut indices: Vec<_> = ranked.iter().map(|(index, _)| *index).collect();
    indices.sort_unstable();
    assert_eq!(indices, [0, 1, 2, 3]);
    let tokens = answer["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(tokens > 4 * 20, "{tokens}");
    // A score does not depend on the documents beside it.
    for (index, score) in &ranked {
        let alone = json!({ "query": PROMPT, "documents": [DOCUMENTS[*index as usize]] });
        let alone = server.post("/v1/rerank", alone).json();
        assert_eq!(results(&alone["results"], "relevance_score"), [(0, *score)]);
    }
    for path in ["/rerank", "/reranking", "/v1/reranking", "/v2/rerank"] {
        assert_eq!(server.post(path, body.clone()).json(), answer, "{path}");
    }
    let best =
        json!({ "query": PROMPT, "documents": DOCUMENTS, "top_n": 2, "return_documents": true });
    let best = server.post("/v1/rerank", best).json();
    assert_eq!(results(&best["results"], "relevance_score"), ranked[..2]);
    let text = DOCUMENTS[ranked[0].0 as usize];
    assert_eq!(best["results"][0]["document"], json!({ "text": text }));
    let objects = DOCUMENTS.map(|text| json!({ "text": text }));
    let objects = json!({ "query": PROMPT, "documents": objects });
    assert_eq!(server.post("/v1/rerank", objects).json()["results"], answer["results"]);
    // The form of Text Embeddings Inference.
    let texts = json!({ "query": PROMPT, "texts": DOCUMENTS, "return_text": true });
    let list = server.post("/rerank", texts).json();
    assert_eq!(results(&list, "score"), ranked);
    assert_eq!(list[0]["text"], text);
}

#[test]
fn requests_that_cannot_be_ranked_are_refused() {
    let (server, _model) = ranking();
    for (body, part) in [
        (json!({ "documents": DOCUMENTS }), "\"query\": must be given"),
        (json!({ "query": PROMPT }), "\"documents\": must be from 1 to 2048 documents, not 0"),
        (json!({ "query": PROMPT, "documents": ["a", 1] }), "\"documents[1]\": must be a string"),
        (json!({ "query": PROMPT, "documents": DOCUMENTS, "top_n": 0 }), "\"top_n\""),
        (json!({ "query": PROMPT, "documents": ["rain ".repeat(300)] }), "context"),
    ] {
        server.post("/v1/rerank", body).refused(400, &[part]);
    }
    let body = json!({ "input": PROMPT });
    server.post("/v1/embeddings", body.clone()).refused(501, &["this server ranks documents"]);
    server.post("/embeddings", body).refused(501, &["this server ranks documents"]);
    let other = serve(&["-c", "256"]);
    let body = json!({ "query": PROMPT, "documents": DOCUMENTS });
    other.post("/v1/rerank", body).refused(501, &["--reranking"]);
}
