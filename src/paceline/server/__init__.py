"""The OpenAI-compatible server: an engine on a thread of its own behind an asyncio application."""
