"""Mistakes in the use of the package. mypy must find one in each line that says so."""

import plimsoll

plan = plimsoll.plan("model.gguf", cards=["3090"])
plan["fit"]  # mistake
plan["cards"][0]["peak"].upper()  # mistake
plimsoll.plan("model.gguf", cards=[24])  # mistake
plimsoll.plan("model.gguf")  # mistake
plimsoll.doctor(7)  # mistake
plimsoll.doctor("log")["hints"][0]["saves"] + "x"  # mistake
