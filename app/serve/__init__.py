"""The HTTP service: the predictor behind `POST /v1/classify`.

START HERE: `serve.py` starts and stops it, `service.py` has its routes, `classifier.py` takes a picture through the
predictor. One event loop, in the thread serve:http, talks; pictures are decoded in the threads decode:N.
"""
