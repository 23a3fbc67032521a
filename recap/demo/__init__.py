"""How the bundled model is made: pictures, grammar, tokenizer, training, evaluation, export.

python -m recap.demo make        # train from nothing and export to assets/demo-vlm
python -m recap.demo evaluate    # one line a figure, exit status 1 if a target is missed
python -m recap.demo examples    # draw assets/examples
"""
