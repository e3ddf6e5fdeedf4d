"""Everything that makes the embedded model: its problems, tokenizer, training, evaluation and installation.

`python -m tools.acorn.train` does it all from one seed (about an hour on two cores);
`python -m tools.acorn.evaluate` scores what is installed. README.md here says how it fits together.
"""
