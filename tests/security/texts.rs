//! Advisories about vocabularies, chat templates and grammars.

use rope_cpu::{
    chat::{Message, Role, Template},
    constraint::{Constraint, Grammar, Vocabulary, Word},
    gguf::{Array, Gguf, Metadata, Value, ValueType},
    tokenizer::{Ends, Special, Tokenizer},
};
use rope_cpu_testing::builder::{ARRAY, BOOL, Builder, F32, I32, STRING, array, string, strings};

/// Returns the file of a SentencePiece vocabulary with these tokens after those of all bytes.
fn vocabulary(byte_tokens: Vec<String>, others: &[(&str, i32)]) -> Builder {
    let mut kinds = vec![6i32; byte_tokens.len()];
    let mut tokens = byte_tokens;
    for (text, kind) in others {
        tokens.push((*text).into());
        kinds.push(*kind);
    }
    let len = tokens.len() as u64;
    let kinds = array(I32, len, kinds.into_iter().map(i32::to_le_bytes));
    Builder::new()
        .key("tokenizer.ggml.model", STRING, string("llama"))
        .key("tokenizer.ggml.tokens", ARRAY, strings(&tokens))
        .key("tokenizer.ggml.token_type", ARRAY, kinds)
        .key("tokenizer.ggml.scores", ARRAY, array(F32, len, (0..len).map(|_| [0; 4])))
        .key("tokenizer.ggml.add_space_prefix", BOOL, [0])
}

fn bytes() -> Vec<String> {
    (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect()
}

/// CVE-2025-49847: the length of a token is cut to 32 bits, signed, and passes the check of the
/// buffer. Lengths are of the text here; a long token is whole in both directions.
#[test]
fn cve_2025_49847() {
    let long = "ab".repeat(1 << 20);
    let file = vocabulary(bytes(), &[("a", 1), ("b", 1), (&long, 4)]).bytes();
    let gguf = Gguf::parse(&file, &[]).unwrap();
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
    assert_eq!(*tokenizer.piece(258, true), *long.as_bytes());
    let tokens = tokenizer.encode(&long, Special::Parse, Ends::Omit);
    assert_eq!(tokens, [258]);
    assert_eq!(tokenizer.decode(&[258, 256, 258], true).len(), 2 * long.len() + 1);
    // A length that is negative as a signed number is refused with the file.
    let tokens =
        [&8u32.to_le_bytes()[..], &1u64.to_le_bytes(), &(1u64 << 31).to_le_bytes()].concat();
    let file = Builder::new().key("tokenizer.ggml.tokens", ARRAY, tokens).bytes();
    assert!(Gguf::parse(&file, &[]).unwrap_err().to_string().contains("2147483648 bytes"));
}

/// llama.cpp #25969: a byte token's number is signed, and is an index.
#[test]
fn llama_cpp_25969() {
    for wrong in ["<0x-1>", "<0x+1>", "<0x 1>", "<0x1>", "<0xGG>", "<0x100>", "<0x>", "", "<0xé>"]
    {
        // In place of a byte, the byte is missing.
        let mut tokens = bytes();
        tokens[255] = wrong.into();
        let file = vocabulary(tokens, &[("a", 1)]).bytes();
        let gguf = Gguf::parse(&file, &[]).unwrap();
        let error = Tokenizer::from_metadata(gguf.metadata()).unwrap_err().to_string();
        assert!(error.contains("0xFF"), "{wrong}: {error}");
        // As one more, it spells no byte.
        let file = vocabulary(bytes(), &[("a", 1), (wrong, 6)]).bytes();
        let gguf = Gguf::parse(&file, &[]).unwrap();
        if let Ok(tokenizer) = Tokenizer::from_metadata(gguf.metadata()) {
            assert!(tokenizer.piece(257, true).is_empty(), "{wrong}");
            tokenizer.encode(wrong, Special::Parse, Ends::Omit);
        }
    }
}

/// GHSA-7rxv-5jhh-j6xx: a number of tokens beyond 32 bits passes the check of the caller's buffer.
/// Tokens are in a vector here, and their number is as long as any length. The server bounds the text
/// (`server::limits::the_largest_body_follows_from_the_context`).
#[test]
fn ghsa_7rxv_5jhh_j6xx() {
    let file = vocabulary(bytes(), &[("a", 1)]).bytes();
    let gguf = Gguf::parse(&file, &[]).unwrap();
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
    let text = "b".repeat(1 << 20);
    let mut tokens = Vec::new();
    tokenizer.append(&mut tokens, &text, Special::AsText);
    tokenizer.append(&mut tokens, &text, Special::AsText);
    assert_eq!(tokens.len(), 2 << 20);
    assert_eq!(tokenizer.decode(&tokens, true).len(), 2 << 20);
}

/// An array of tokens of the wrong type or length, which is read as if it were another.
#[test]
fn arrays_of_a_vocabulary_have_their_type_and_length() {
    for (key, element) in
        [("scores", ValueType::U8), ("token_type", ValueType::U8), ("tokens", ValueType::I32)]
    {
        let key = format!("tokenizer.ggml.{key}");
        let file = vocabulary(bytes(), &[]).bytes();
        let gguf = Gguf::parse(&file, &[]).unwrap();
        let mut metadata = Metadata::default();
        for (name, value) in gguf.metadata().iter().filter(|(name, _)| *name != key) {
            metadata.insert(name, value);
        }
        let bytes = vec![0; 256 * element.size().unwrap()];
        metadata.insert(&key, Value::Array(Array { element, len: 256, bytes: &bytes }));
        let found = Tokenizer::from_metadata(&metadata);
        assert!(found.is_err() || key.ends_with("token_type"), "{key}");
    }
}

/// Templates that leave the sandbox of Python's Jinja.
const ESCAPES: &[&str] = &[
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{% for c in ().__class__.__base__.__subclasses__() %}{{ c.__name__ }}{% endfor %}",
    "{{ self.__init__.__globals__.__builtins__.__import__('os').popen('touch /tmp/x').read() }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ lipsum.__globals__['os'].system('id') }}",
    "{{ messages.__class__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ ''|attr('__class__') }}",
    "{% import 'os' as os %}{{ os.system('id') }}",
    "{% include '/etc/passwd' %}",
    "{% extends '/etc/passwd' %}",
    "{{ open('/etc/passwd').read() }}",
];

/// CVE-2024-34359, CVE-2026-5760: code in a chat template runs. Values have no attributes of an
/// interpreter here, and no function reaches the system. Templates of rerankers are no Jinja: they
/// replace two words.
#[test]
fn cve_2024_34359() {
    for source in ESCAPES {
        let Ok(template) = Template::new(source, "<s>", "</s>") else { continue };
        let rendered = template.render(&[Message::new(Role::User, "Hello")], &[], true);
        let text = rendered.unwrap_or_default();
        assert!(text.trim().is_empty(), "{source}: {text}");
    }
}

/// llama.cpp #18990 and #22234: a grammar without the rule that answers start with.
#[test]
fn llama_cpp_18990() {
    let words = ["a", "b"].map(|text| Word::Text(text.as_bytes().into()));
    let vocabulary = Vocabulary::new(words, &[]).unwrap();
    for grammar in [
        Grammar::Gbnf("rout ::= \"a\"".into()),
        Grammar::Gbnf("Root ::= \"a\"".into()),
        Grammar::Gbnf(String::new()),
        Grammar::Gbnf("# nothing".into()),
        Grammar::Gbnf("x ::= y\ny ::= \"a\"".into()),
        Grammar::Lark("%llguidance {}\nbegin: \"a\"".into()),
        Grammar::Lark("%llguidance {}".into()),
        Grammar::Lark(String::new()),
        Grammar::JsonSchema(r##"{"$ref": "#/$defs/root"}"##.into()),
        Grammar::JsonSchema(r##"{"$ref": "#/$defs/root", "$defs": {}}"##.into()),
    ] {
        let error = Constraint::new(&vocabulary, &grammar).err();
        assert!(!error.unwrap_or_else(|| panic!("{grammar:?}")).to_string().is_empty());
    }
}
