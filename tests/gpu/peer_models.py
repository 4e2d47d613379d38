"""The dimensions of presets in the words of LlamaConfig, for the peers. Held against our parameter count where they run."""

PEER_MODELS = {
    "toy-1m": dict(hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
                   num_key_value_heads=2, head_dim=32, vocab_size=1024),
    "toy-5m": dict(hidden_size=256, intermediate_size=704, num_hidden_layers=6, num_attention_heads=8,
                   num_key_value_heads=4, head_dim=32, vocab_size=1024),
    "llama-25m": dict(hidden_size=384, intermediate_size=1024, num_hidden_layers=8, num_attention_heads=6,
                      num_key_value_heads=2, head_dim=64, vocab_size=16384),
    "llama-120m": dict(hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
                       num_key_value_heads=4, head_dim=64, vocab_size=32000),
    "llama-1b": dict(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,
                     num_key_value_heads=4, head_dim=64, vocab_size=32000),
    "llama3.1-8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                        num_key_value_heads=8, head_dim=128, vocab_size=128256),
}
