"""`onechip chat`: a terminal in front of any server that speaks OpenAI's chat protocol, over HTTP."""
