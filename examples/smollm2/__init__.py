"""SmolLM2-135M-Instruct, a real pretrained chat model, on a procedural task of reasoning-gym."""
