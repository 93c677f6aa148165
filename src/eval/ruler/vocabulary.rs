//! The words that keys are made of: an adjective and a noun, such as `quiet-river`.

/// The number of different pairs.
pub const PAIRS: usize = ADJECTIVES.len() * NOUNS.len();

/// Returns pair `index`, which is less than [`PAIRS`].
pub fn pair(index: usize) -> String {
    let (adjective, noun) = (index / NOUNS.len() % ADJECTIVES.len(), index % NOUNS.len());
    format!("{}-{}", ADJECTIVES[adjective], NOUNS[noun])
}

#[rustfmt::skip]
/// Adjectives, each once.
const ADJECTIVES: [&str; 256] = [
    "able", "absent", "acid", "ample", "ancient", "angry", "arctic", "autumn", "awake", "bald",
    "bare", "basic", "bitter", "blank", "blind", "blue", "blunt", "bold", "brave", "brief",
    "bright", "brisk", "broad", "broken", "brown", "busy", "calm", "careful", "cheap", "civic",
    "classic", "clean", "clear", "clever", "cloudy", "coarse", "cold", "common", "copper",
    "costly", "cozy", "crisp", "cruel", "curious", "curly", "daily", "damp", "dark", "deep",
    "dense", "dim", "direct", "distant", "double", "dry", "dull", "dusty", "eager", "early",
    "earnest", "easy", "elder", "empty", "entire", "equal", "exact", "extra", "faint", "fair",
    "false", "famous", "fancy", "fast", "fierce", "final", "firm", "flat", "fluent", "foggy",
    "foreign", "formal", "fragile", "frank", "free", "fresh", "frozen", "full", "funny", "gentle",
    "giant", "glad", "global", "golden", "grand", "grateful", "gray", "greedy", "green", "grim",
    "handy", "happy", "hard", "harsh", "hasty", "heavy", "hidden", "hollow", "honest", "hot",
    "huge", "humble", "hungry", "icy", "ideal", "idle", "inner", "instant", "jolly", "just",
    "keen", "kind", "large", "late", "lazy", "lean", "level", "light", "little", "local",
    "lonely", "long", "loose", "loud", "loyal", "lucky", "magic", "major", "mature", "mellow",
    "mild", "minor", "modern", "modest", "moist", "moral", "muddy", "mute", "narrow", "native",
    "neat", "neutral", "new", "nimble", "noble", "noisy", "normal", "novel", "odd", "old", "open",
    "orange", "oval", "pale", "patient", "perfect", "plain", "polite", "poor", "proud", "pure",
    "purple", "quick", "quiet", "rapid", "rare", "raw", "ready", "red", "remote", "rich", "rigid",
    "ripe", "robust", "rough", "round", "royal", "rude", "rural", "rusty", "sad", "safe", "salty",
    "secret", "serious", "sharp", "shiny", "short", "shy", "silent", "silver", "simple", "sleepy",
    "slim", "slow", "smart", "smooth", "sober", "soft", "solar", "solid", "sour", "spare",
    "spicy", "stable", "steady", "steep", "stern", "sticky", "stiff", "still", "strange",
    "strict", "strong", "sturdy", "subtle", "sudden", "sunny", "sweet", "swift", "tall", "tame",
    "tender", "thick", "thin", "tidy", "timid", "tiny", "tired", "tough", "tranquil", "true",
    "ugly", "urban", "urgent", "useful", "vague", "vast", "violet", "vivid", "warm", "wary",
    "weak", "wet", "white", "whole", "wide",
];

#[rustfmt::skip]
/// Nouns, each once.
const NOUNS: [&str; 256] = [
    "acorn", "actor", "anchor", "angle", "ankle", "apple", "apron", "arch", "arrow", "artist",
    "atlas", "attic", "author", "badge", "bakery", "balcony", "banjo", "barn", "barrel", "basin",
    "basket", "bay", "beach", "beacon", "bean", "bear", "bell", "bench", "berry", "bird",
    "blanket", "boat", "bottle", "boulder", "bow", "branch", "bread", "brick", "bridge", "broom",
    "brush", "bucket", "button", "cabin", "cable", "camel", "camera", "candle", "canoe", "canyon",
    "captain", "carpet", "castle", "cave", "cellar", "chain", "chair", "chalk", "cherry",
    "chimney", "circle", "city", "clock", "cloud", "coast", "cobbler", "coin", "comet", "compass",
    "corner", "cotton", "cradle", "crane", "creek", "cricket", "crown", "cup", "curtain",
    "dancer", "desert", "desk", "diamond", "doctor", "dolphin", "donkey", "door", "dragon",
    "drawer", "drum", "eagle", "easel", "elbow", "engine", "envelope", "farmer", "feather",
    "fence", "ferry", "fiddle", "field", "finger", "flag", "flame", "flute", "forest", "fork",
    "fossil", "fountain", "fox", "frame", "friend", "frog", "garden", "gate", "giraffe",
    "glacier", "glove", "goat", "grain", "grape", "guitar", "hammer", "harbor", "hat", "hawk",
    "helmet", "hill", "hinge", "honey", "horn", "horse", "hotel", "house", "insect", "island",
    "jacket", "jar", "jewel", "jungle", "kettle", "key", "kitchen", "kite", "knight", "ladder",
    "lake", "lamp", "lantern", "leaf", "lemon", "letter", "library", "lion", "lizard", "magnet",
    "mango", "map", "marble", "market", "meadow", "melon", "mirror", "monkey", "moon", "mosaic",
    "mountain", "mouse", "museum", "needle", "nest", "notebook", "oak", "oar", "ocean", "olive",
    "onion", "orchard", "organ", "otter", "owl", "paddle", "palace", "panda", "paper", "parrot",
    "path", "peach", "pearl", "pebble", "pencil", "pepper", "piano", "picture", "pigeon",
    "pillow", "pilot", "pine", "pirate", "planet", "plate", "pocket", "pond", "potato", "prairie",
    "pumpkin", "puzzle", "rabbit", "radio", "railway", "rain", "ribbon", "river", "road", "robin",
    "rocket", "roof", "rope", "rose", "sailor", "salad", "salmon", "sand", "scarf", "school",
    "scissors", "shadow", "shark", "sheep", "shell", "ship", "shovel", "signal", "singer",
    "sister", "skate", "sky", "snail", "soap", "spider", "spoon", "spring", "squirrel", "statue",
    "stone", "storm", "stove", "street", "sugar", "summit", "sunset", "swan", "table", "tailor",
    "teacher", "temple", "thimble",
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn all_pairs_differ() {
        let pairs: HashSet<_> = (0..PAIRS).map(pair).collect();
        assert_eq!(pairs.len(), PAIRS);
    }
}
