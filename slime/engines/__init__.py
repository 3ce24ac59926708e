"""Engines: launching SGLang and the router, watching them, and SGLang's CPU path."""
