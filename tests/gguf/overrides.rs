//! `--override-kv`.

use rope_cpu::gguf::{Gguf, Override, Value};

use rope_cpu_testing::builder::model;

fn overridden(list: &str, key: &str) -> Result<String, String> {
    let bytes = model().bytes();
    let overrides = Override::parse_list(list).map_err(|e| e.to_string())?;
    let gguf = Gguf::parse(&bytes, &overrides).map_err(|e| e.to_string())?;
    let value = gguf.metadata().get(key).ok_or("not there")?;
    Ok(format!("{} {value}", value.value_type().name()))
}

#[test]
fn keys_are_replaced_in_place_and_added_at_the_end() {
    let bytes = model().bytes();
    let list = "llama.context_length=int:16384,new.key=str:x";
    let overrides = Override::parse_list(list).unwrap();
    let gguf = Gguf::parse(&bytes, &overrides).unwrap();
    let metadata = gguf.metadata();
    assert_eq!(metadata.u32("llama.context_length").unwrap(), Some(16384));
    assert_eq!(metadata.iter().nth(2).unwrap().0, "llama.context_length");
    assert_eq!(metadata.iter().last().unwrap(), ("new.key", Value::String(b"x")));
    assert_eq!(metadata.iter().len(), model().keys.len() + 1);
}

#[test]
fn each_type_is_read_and_stands_for_its_kind() {
    let cases = [
        ("test.u8=int:7", "test.u8", "u8 7"),
        ("test.u64=int:-7", "test.u64", "i64 -7"),
        ("llama.rope.freq_base=float:1e6", "llama.rope.freq_base", "f32 1000000.0"),
        ("test.f64=float:3", "test.f64", "f64 3.0"),
        ("tokenizer.ggml.add_bos_token=bool:false", "tokenizer.ggml.add_bos_token", "bool false"),
        ("tokenizer.ggml.pre=str:llama-bpe", "tokenizer.ggml.pre", "string \"llama-bpe\""),
        ("general.name=str:", "general.name", "string \"\""),
        ("general.name=str:a=b:c", "general.name", "string \"a=b:c\""),
        ("new=bool:true", "new", "bool true"),
        ("a=int:1,b=int:2", "b", "u32 2"),
        ("llama.context_length=int:-1", "llama.context_length", "i64 -1"),
        ("a=int:4294967296", "a", "i64 4294967296"),
        ("a=float:1.5", "a", "f32 1.5"),
        ("a=float:1e300", "a", "f64 1e300"),
        ("\"a=str:x,\"\"y\"\"\",b=int:2", "a", "string \"x,\\\"y\\\"\""),
        ("\"a=str:x,y\",b=int:2", "b", "u32 2"),
    ];
    for (list, key, expected) in cases {
        assert_eq!(overridden(list, key).as_deref(), Ok(expected), "{list}");
    }
}

#[test]
fn what_cannot_be_used_is_named() {
    let cases = [
        ("", "\"\" is not of the form KEY=TYPE:VALUE"),
        ("key", "\"key\" is not of the form KEY=TYPE:VALUE"),
        ("key=int", "\"key=int\" is not of the form KEY=TYPE:VALUE"),
        ("a=int:1,", "\"\" is not of the form KEY=TYPE:VALUE"),
        ("=int:1", "the key of \"=int:1\" is empty or too long"),
        ("key=u32:1", "key \"key\": \"u32\" is not a type: use int, float, bool or str"),
        ("key=int:1.5", "key \"key\": \"1.5\" is not a whole number of 64 bits"),
        (
            "key=int:9223372036854775808",
            "key \"key\": \"9223372036854775808\" is not a whole number of 64 bits",
        ),
        ("key=float:", "key \"key\": \"\" is not a finite number"),
        ("key=float:nan", "key \"key\": \"nan\" is not a finite number"),
        ("key=float:1e999", "key \"key\": \"1e999\" is not a finite number"),
        ("key=bool:1", "key \"key\": \"1\" is not true or false"),
        ("\"a=int:1", "\"\\\"a=int:1\": a quoted item must end with its closing quote"),
        ("\"a=int:1\"b", "\"\\\"a=int:1\\\"b\": a quoted item must end with its closing quote"),
        (
            "general.architecture=int:1",
            "`override_kv` gives metadata key \"general.architecture\" as int, \
             but in the file it is a string",
        ),
        (
            "llama.context_length=float:1",
            "`override_kv` gives metadata key \"llama.context_length\" as float, \
             but in the file it is u32 4096",
        ),
        (
            "tokenizer.ggml.tokens=str:x",
            "`override_kv` gives metadata key \"tokenizer.ggml.tokens\" as str, \
             but in the file it is an array of 3 values of type string",
        ),
        (
            "test.u8=bool:true",
            "`override_kv` gives metadata key \"test.u8\" as bool, but in the file it is u8 200",
        ),
        ("a=int:1,a=int:1", "`override_kv` gives metadata key \"a\" twice"),
        (
            "general.alignment=int:64",
            "`override_kv` cannot change general.alignment, on which the tensor offsets depend",
        ),
    ];
    for (list, expected) in cases {
        assert_eq!(overridden(list, "a"), Err(expected.into()), "{list}");
    }
}
