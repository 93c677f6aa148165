//! Chat templates: a conversation as the text the model was trained on.
