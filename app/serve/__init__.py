"""The HTTP service: the predictor behind `POST /v1/classify`.

START HERE: `serve.py` starts and stops the service, `service.py` holds its state, `routes.py` its routes, `handler.py` answers
a request, `classifier.py` decodes pictures and submits them to the predictor. One event loop, in the thread serve:http, does
all of HTTP; the threads decode:N decode pictures.
"""
