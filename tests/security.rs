//! Published advisories about llama.cpp, ollama and others that read GGUF, as tests. The table of
//! docs/security.md lists them, with the other tests that cover one.

mod files;
mod models;
mod texts;
